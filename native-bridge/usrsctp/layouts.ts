/** Numbers and structures of usrsctp.h, as in Debian's libusrsctp2 on 64-bit Linux. */

export const AF_CONN = 123;
export const SOCK_STREAM = 1;
export const IPPROTO_SCTP = 132;
/** The library uses the system's numbers for these. */
export const SOL_SOCKET = 1;
export const SO_SNDBUF = 7;
export const SO_RCVBUF = 8;
export const SO_LINGER = 13;
export const SHUT_WR = 1;

/** Options of level IPPROTO_SCTP. */
export const Option = {
  initMessage: 0x03,
  noDelay: 0x04,
  adaptationLayer: 0x08,
  peerAddressParameters: 0x0a,
  fragmentInterleave: 0x10,
  event: 0x1e,
  receiveInfo: 0x1f,
  status: 0x100,
} as const;

/** Types of notifications, and the first state of an association in them. */
export const Notification = {
  association: 1,
  shutdown: 5,
  adaptation: 6,
  partialDelivery: 7,
  senderDry: 10,
  firstState: 1,
} as const;

/** Flags of received messages. */
export const MSG_EOR = 0x80;
export const MSG_NOTIFICATION = 0x2000;
/** Kinds of information to send along with a message. */
export const SENDV_SNDINFO = 1;
/** Events of a socket (`usrsctp_get_events`). */
export const EVENT_WRITE = 2;

/** struct sockaddr_conn: family, port in network order, token of the path. */
export const SockaddrConn = { bytes: 16, port: 2, token: 8 } as const;
/** struct sctp_sndinfo. */
export const SendInfo = { bytes: 16, streamId: 0, flags: 2, payloadProtocol: 4 } as const;
export const SendFlag = { unordered: 0x400, acknowledgeAtOnce: 0x4000 } as const;
/** struct sctp_rcvinfo. */
export const ReceiveInfo = { bytes: 28, streamId: 0, flags: 4, payloadProtocol: 8 } as const;
/** struct sctp_paddrparams. */
export const PathParameters = { bytes: 152, heartbeat: 132, mtu: 136, flags: 140 } as const;
/** Enables heartbeats at the given interval. */
export const HEARTBEAT_ENABLE = 0x1;
/** Disables path MTU discovery by the library. */
export const PMTUD_DISABLE = 0x10;
/** struct sctp_status; only the fields that are read. */
export const Status = { bytes: 176, unacknowledged: 12, pending: 14 } as const;
