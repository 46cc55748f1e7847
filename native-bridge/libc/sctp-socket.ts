/**
 * SCTP sockets of the kernel, one association each, or a listener (sctp(7), RFC 6458). No call waits.
 * Opening one on a kernel without SCTP fails with EPROTONOSUPPORT.
 */
import { awaitRoom, closeDescriptor } from './descriptor.ts';
import { unreserved } from './descriptor-limit.ts';
import {
  AF_INET,
  bind,
  boundName,
  connect,
  getOptionBytes,
  IPPROTO_SCTP,
  openSocket,
  SO_RCVBUF,
  SO_SNDBUF,
  SOCKADDR_IN6_BYTES,
  SOL_SOCKET,
  SocketType,
  setBuffer,
  setOption,
  setOptionBytes,
  socketAddress,
} from './internet-socket.ts';
import {
  addressOf,
  type BytesCall,
  checked,
  lastErrno,
  libc,
  type MessageCall,
  type NumberCall,
  SystemCallError,
} from './libc.ts';
import {
  type AssociationOptions,
  type AssociationSocket,
  type ReceiveArea,
  type ReceivedFacts,
  readEvent,
  type SctpEvent,
  type SctpMessageKind,
} from './sctp-event.ts';

const listen = libc.func('int listen(int fd, int backlog)') as NumberCall;
const accept = libc.func('int accept4(int fd, void *address, void *length, int flags)') as (
  fd: number,
  address: Uint8Array,
  length: Uint8Array,
  flags: number,
) => number;
const shutdown = libc.func('int shutdown(int fd, int how)') as (fd: number, how: number) => number;
const send = libc.func(
  'int64_t send(int fd, void *bytes, uint64_t length, int flags)',
) as BytesCall;
const sendmsg = libc.func('int64_t sendmsg(int fd, void *message, int flags)') as MessageCall;
const recvmsg = libc.func('int64_t recvmsg(int fd, void *message, int flags)') as MessageCall;

const SO_REUSEADDR = 2;
const SO_ERROR = 4;
const SO_LINGER = 13;
const SO_MEMINFO = 55;
const SHUT_WR = 1;
const SOCK_CLOEXEC_NONBLOCK = 0x80000 | 0x800;
const MSG_DONTWAIT_NOSIGNAL = 0x40 | 0x4000;
const MSG_EOR = 0x80;
const MSG_NOTIFICATION = 0x8000;
const EAGAIN = 11;
const EMSGSIZE = 90;
const ECONNREFUSED = 111;
const EINPROGRESS = 115;

const Option = {
  rto: 0,
  initMessage: 2,
  noDelay: 3,
  adaptationLayer: 7,
  disableFragments: 8,
  peerAddressParameters: 9,
  status: 14,
  fragmentInterleave: 18,
  receiveInfo: 32,
  defaultSendInfo: 34,
  event: 127,
  remoteUdpPort: 132,
} as const;

const Notification = {
  association: 0x8001,
  shutdown: 0x8005,
  partialDelivery: 0x8006,
  adaptation: 0x8007,
  senderDry: 0x8009,
  firstState: 0,
} as const;

const EVENTS = [
  Notification.association,
  Notification.shutdown,
  Notification.partialDelivery,
  Notification.adaptation,
  Notification.senderDry,
];

/** struct sctp_sndinfo, and its flags. */
const SendInfo = { bytes: 16, streamId: 0, flags: 2, payloadProtocol: 4 } as const;
const UNORDERED = 1;
const SACK_IMMEDIATELY = 8;
/** struct sctp_rcvinfo. */
const ReceiveInfo = { bytes: 28, streamId: 0, flags: 4, payloadProtocol: 8 } as const;
/** Types of control messages. */
const SNDINFO = 2;
const CONTROL_HEADER_BYTES = 16;
/** struct sctp_paddrparams, which is packed. */
const PathParameters = { bytes: 156, heartbeat: 132, flags: 146 } as const;
const HEARTBEAT_ENABLE = 1;
/** struct sctp_status; only the fields that are read. */
const Status = { bytes: 176, fragmentationPoint: 20 } as const;
/** struct sctp_udpencaps. */
const UdpEncapsulation = { bytes: 144, address: 8, port: 136 } as const;
/** struct linger: on, no seconds. */
const LINGER_NONE = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);
/** Words of SO_MEMINFO, and the one with the bytes of unacknowledged messages. */
const MemoryInfo = { bytes: 36, unacknowledged: 20 } as const;
/** struct msghdr, and the struct iovec after it. */
const Message = { bytes: 56, vector: 16, vectorCount: 24, control: 32, controlBytes: 40 } as const;
const VECTOR_BYTES = 16;

export interface SctpSocketOptions extends AssociationOptions {
  /** The UDP port of peers for SCTP in UDP (RFC 6951), if the kernel supports that. */
  readonly remoteUdpPort: number | undefined;
  readonly timing: SctpTiming;
}

/** Retransmission and heartbeat intervals, in milliseconds. */
export interface SctpTiming {
  readonly firstMs: number;
  readonly leastMs: number;
  readonly mostMs: number;
  readonly heartbeatMs: number;
}

/**
 * A message with its vector and its control area, for one call at a time: all sockets share it. The
 * addresses are those of its own memory.
 */
class MessageHeader {
  readonly bytes: Uint8Array;
  readonly fields: DataView;
  readonly controlAt = Message.bytes + VECTOR_BYTES;
  readonly #controlBytes: number;

  constructor(controlBytes: number) {
    this.#controlBytes = controlBytes;
    this.bytes = new Uint8Array(this.controlAt + controlBytes);
    this.fields = new DataView(this.bytes.buffer);
    const base = Number(addressOf(this.bytes));
    this.putWord(Message.vector, base + Message.bytes);
    this.putWord(Message.vectorCount, 1);
    this.putWord(Message.control, base + this.controlAt);
    this.putWord(Message.controlBytes, controlBytes);
  }

  /** Sets the bytes, and resets the lengths that the kernel overwrote. */
  aim(address: number, length: number): void {
    this.putWord(Message.bytes, address);
    this.putWord(Message.bytes + 8, length);
    this.putWord(Message.controlBytes, this.#controlBytes);
    this.fields.setUint32(Message.bytes - 8, 0, true);
  }

  get flags(): number {
    return this.fields.getUint32(Message.bytes - 8, true);
  }

  /** Writes 64 bits without a BigInt: user-space addresses have 47 bits. */
  putWord(at: number, value: number): void {
    this.fields.setUint32(at, value % 0x1_0000_0000, true);
    this.fields.setUint32(at + 4, Math.floor(value / 0x1_0000_0000), true);
  }
}

const incoming = new MessageHeader(CONTROL_HEADER_BYTES + 32);
const outgoing = new MessageHeader(CONTROL_HEADER_BYTES + SendInfo.bytes);
outgoing.putWord(outgoing.controlAt, CONTROL_HEADER_BYTES + SendInfo.bytes);
outgoing.fields.setUint32(outgoing.controlAt + 8, IPPROTO_SCTP, true);
outgoing.fields.setUint32(outgoing.controlAt + 12, SNDINFO, true);

/** Offset of struct sctp_rcvinfo of the last received message: the only control message. */
const receivedAt = incoming.controlAt + CONTROL_HEADER_BYTES;
const received: ReceivedFacts = {
  get isNotification(): boolean {
    return (incoming.flags & MSG_NOTIFICATION) !== 0;
  },
  get isEnd(): boolean {
    return (incoming.flags & MSG_EOR) !== 0;
  },
  get streamId(): number {
    return incoming.fields.getUint16(receivedAt + ReceiveInfo.streamId, true);
  },
  get unordered(): boolean {
    return (incoming.fields.getUint16(receivedAt + ReceiveInfo.flags, true) & UNORDERED) !== 0;
  },
  get payloadProtocol(): number {
    return incoming.fields.getUint32(receivedAt + ReceiveInfo.payloadProtocol);
  },
};

interface AcceptedSocket {
  readonly socket: SctpSocket;
  /** 16 bytes, with IPv4 mapped after ::ffff. */
  readonly peer: Uint8Array;
  readonly port: number;
}

export class SctpSocket implements AssociationSocket {
  readonly fd: number;
  /** The stream of messages without a control message; -1: unknown. */
  #defaultStream = -1;
  #defaultProtocol = -1;
  #defaultUnordered = false;
  #sentTooLong = false;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /**
   * A socket bound to an address and a port, 0 for a free one. Other sockets of this host that may
   * share the port can bind it, too, as long as none listens. Throws `SystemCallError`.
   */
  static open(address: string, port: number, options: SctpSocketOptions): SctpSocket {
    const name = socketAddress(address, port);
    const fd = unreserved('socket', openSocket(name, SocketType.stream, IPPROTO_SCTP));
    try {
      setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
      configure(fd, options);
      checked('bind', bind(fd, name, name.length), `${address} port ${port}`);
      return new SctpSocket(fd);
    } catch (error) {
      closeDescriptor(fd);
      throw error;
    }
  }

  /** The port that it is bound to. Throws `SystemCallError`. */
  get port(): number {
    return boundName(this.fd).getUint16(2);
  }

  /** Throws `SystemCallError` EADDRINUSE if another socket listens there. */
  listen(backlog: number): void {
    checked('listen', listen(this.fd, backlog));
  }

  /** Accepts a pending association; undefined if there is none. Throws `SystemCallError` EMFILE and so on. */
  accept(): AcceptedSocket | undefined {
    const name = new Uint8Array(SOCKADDR_IN6_BYTES);
    const length = Uint8Array.of(SOCKADDR_IN6_BYTES, 0, 0, 0);
    const fd = accept(this.fd, name, length, SOCK_CLOEXEC_NONBLOCK);
    if (fd < 0) {
      const errno = lastErrno();
      if (errno === EAGAIN) return undefined;
      throw new SystemCallError('accept', errno);
    }
    const peer = new Uint8Array(16);
    if (name[0] === AF_INET) {
      peer.fill(0xff, 10, 12);
      peer.set(name.subarray(4, 8), 12);
    } else {
      peer.set(name.subarray(8, 24));
    }
    const port = ((name[2] as number) << 8) | (name[3] as number);
    return { socket: new SctpSocket(unreserved('accept', fd)), peer, port };
  }

  /** Starts an association. Throws `SystemCallError`. */
  connect(address: string, port: number): void {
    const name = socketAddress(address, port);
    const result = connect(this.fd, name, name.length);
    if (result < 0 && lastErrno() !== EINPROGRESS) checked('connect', result, address);
  }

  send(streamId: number, kind: SctpMessageKind, bytes: Uint8Array): number {
    const sent = this.#send(streamId, kind, bytes);
    if (sent !== -EMSGSIZE) return sent;
    // The path became narrower, and the message was cut for the wider one: SCTP fragments it, this once.
    this.#sentTooLong = true;
    setOption(this.fd, IPPROTO_SCTP, Option.disableFragments, 0);
    const again = this.#send(streamId, kind, bytes);
    setOption(this.fd, IPPROTO_SCTP, Option.disableFragments, 1);
    return again;
  }

  /** True until `takeSentTooLong`. */
  get sentTooLong(): boolean {
    return this.#sentTooLong;
  }

  /** True once after sending a message longer than a packet of the path now carries. */
  takeSentTooLong(): boolean {
    const was = this.#sentTooLong;
    this.#sentTooLong = false;
    return was;
  }

  receive(area: ReceiveArea, start: number): number {
    incoming.aim(area.address + start, area.bytes.length - start);
    const length = recvmsg(this.fd, incoming.bytes, MSG_DONTWAIT_NOSIGNAL);
    return length < 0 ? -lastErrno() : length;
  }

  get received(): ReceivedFacts {
    return received;
  }

  readEvent(area: ReceiveArea, length: number): SctpEvent {
    const event = readEvent(area, length, Notification);
    if (event.type !== 'association' || event.state !== 'cannot-start') return event;
    // The kernel reports the peer's ABORT only through the error.
    const error = this.#option(SOL_SOCKET, SO_ERROR, new Uint8Array(4));
    return { ...event, aborted: error?.getUint32(0, true) === ECONNREFUSED };
  }

  /** True if there is room for a message, or the association has ended. */
  get writable(): boolean {
    return awaitRoom(this.fd, 0);
  }

  /** Bytes of memory of unacknowledged messages, sent or not. */
  get unacknowledged(): number {
    const info = this.#option(SOL_SOCKET, SO_MEMINFO, new Uint8Array(MemoryInfo.bytes));
    return info?.getUint32(MemoryInfo.unacknowledged, true) ?? 0;
  }

  /** Length of the longest message that fits a packet of the path; 0 if the association has ended. */
  get unfragmentedBytes(): number {
    const status = this.#option(IPPROTO_SCTP, Option.status, new Uint8Array(Status.bytes));
    return status?.getUint32(Status.fragmentationPoint, true) ?? 0;
  }

  /** The peer's UDP port, for SCTP in UDP; undefined for SCTP directly over IP. */
  udpPortOf(address: string, port: number): number | undefined {
    const bytes = new Uint8Array(UdpEncapsulation.bytes);
    bytes.set(socketAddress(address, port), UdpEncapsulation.address);
    const value = this.#option(IPPROTO_SCTP, Option.remoteUdpPort, bytes);
    return value?.getUint16(UdpEncapsulation.port) || undefined;
  }

  shutdown(): void {
    shutdown(this.fd, SHUT_WR);
  }

  abort(): void {
    setOptionBytes(this.fd, SOL_SOCKET, SO_LINGER, LINGER_NONE);
    this.close();
  }

  close(): void {
    closeDescriptor(this.fd);
  }

  #send(streamId: number, kind: SctpMessageKind, bytes: Uint8Array): number {
    let sent: number;
    if (kind.acknowledgeAtOnce) {
      // Not possible by default, see below. Such messages are few and short.
      putSendInfo(outgoing.fields, outgoing.controlAt + CONTROL_HEADER_BYTES, streamId, kind);
      outgoing.aim(Number(addressOf(bytes)), bytes.length);
      sent = sendmsg(this.fd, outgoing.bytes, MSG_DONTWAIT_NOSIGNAL);
    } else {
      const failure = this.#setDefault(streamId, kind);
      if (failure !== 0) return failure;
      sent = send(this.fd, bytes, bytes.length, MSG_DONTWAIT_NOSIGNAL);
    }
    return sent < 0 ? -lastErrno() : sent;
  }

  /** Sets the default, since most messages have the same kind and stream, so they need no control message. */
  #setDefault(streamId: number, kind: SctpMessageKind): number {
    const { payloadProtocol, unordered } = kind;
    const same = this.#defaultStream === streamId && this.#defaultProtocol === payloadProtocol;
    if (same && this.#defaultUnordered === unordered) return 0;
    const info = new Uint8Array(SendInfo.bytes);
    putSendInfo(new DataView(info.buffer), 0, streamId, kind);
    try {
      setOptionBytes(this.fd, IPPROTO_SCTP, Option.defaultSendInfo, info);
    } catch (error) {
      if (error instanceof SystemCallError) return -lastErrno();
      throw error;
    }
    this.#defaultStream = streamId;
    this.#defaultProtocol = payloadProtocol;
    this.#defaultUnordered = unordered;
    return 0;
  }

  /** The value of an option; undefined if the association has ended. */
  #option(level: number, option: number, bytes: Uint8Array): DataView | undefined {
    return getOptionBytes(this.fd, level, option, bytes) ? new DataView(bytes.buffer) : undefined;
  }
}

/** Throws `SystemCallError` EPROTONOSUPPORT if the kernel has no SCTP; may load its module. */
export function probeSctp(address: string): void {
  closeDescriptor(openSocket(socketAddress(address, 0), SocketType.stream, IPPROTO_SCTP));
}

function putSendInfo(fields: DataView, at: number, streamId: number, kind: SctpMessageKind): void {
  const { unordered, acknowledgeAtOnce, payloadProtocol } = kind;
  const flags = (unordered ? UNORDERED : 0) | (acknowledgeAtOnce ? SACK_IMMEDIATELY : 0);
  fields.setUint16(at + SendInfo.streamId, streamId, true);
  fields.setUint16(at + SendInfo.flags, flags, true);
  fields.setUint32(at + SendInfo.payloadProtocol, payloadProtocol);
}

function configure(fd: number, options: SctpSocketOptions): void {
  const { adaptation, streamCount, timing, remoteUdpPort } = options;
  const set = (option: number, bytes: Uint8Array): void => {
    setOptionBytes(fd, IPPROTO_SCTP, option, bytes);
  };
  const init = new DataView(new ArrayBuffer(8));
  init.setUint16(0, streamCount, true);
  init.setUint16(2, streamCount, true);
  init.setUint16(6, timing.mostMs, true);
  set(Option.initMessage, new Uint8Array(init.buffer));
  const rto = new DataView(new ArrayBuffer(16));
  rto.setUint32(4, timing.firstMs, true);
  rto.setUint32(8, timing.mostMs, true);
  rto.setUint32(12, timing.leastMs, true);
  set(Option.rto, new Uint8Array(rto.buffer));
  const path = new DataView(new ArrayBuffer(PathParameters.bytes));
  path.setUint32(PathParameters.heartbeat, timing.heartbeatMs, true);
  path.setUint32(PathParameters.flags, HEARTBEAT_ENABLE, true);
  set(Option.peerAddressParameters, new Uint8Array(path.buffer));
  setOption(fd, IPPROTO_SCTP, Option.noDelay, 1);
  setOption(fd, IPPROTO_SCTP, Option.adaptationLayer, adaptation);
  setOption(fd, IPPROTO_SCTP, Option.receiveInfo, 1);
  setOption(fd, IPPROTO_SCTP, Option.fragmentInterleave, 0);
  setOption(fd, IPPROTO_SCTP, Option.disableFragments, 1);
  setBuffer(fd, SO_SNDBUF, options.sendBytes);
  setBuffer(fd, SO_RCVBUF, options.receiveBytes);
  if (remoteUdpPort !== undefined) {
    const udp = new DataView(new ArrayBuffer(UdpEncapsulation.bytes));
    udp.setUint16(UdpEncapsulation.port, remoteUdpPort);
    set(Option.remoteUdpPort, new Uint8Array(udp.buffer));
  }
  for (const type of EVENTS) {
    const event = new DataView(new ArrayBuffer(8));
    event.setUint16(4, type, true);
    event.setUint8(6, 1);
    set(Option.event, new Uint8Array(event.buffer));
  }
}
