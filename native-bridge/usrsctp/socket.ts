/** Sockets of the library: one association each, or a listener. No call waits. */
import { lastErrno, SystemCallError } from '../libc/libc.ts';
import {
  type AssociationOptions,
  type AssociationSocket,
  type ReceiveArea,
  type ReceivedFacts,
  readEvent,
  type SctpEvent,
  type SctpMessageKind,
} from '../libc/sctp-event.ts';
import {
  AF_CONN,
  EVENT_WRITE,
  HEARTBEAT_ENABLE,
  IPPROTO_SCTP,
  MSG_EOR,
  MSG_NOTIFICATION,
  Notification,
  Option,
  PathParameters,
  PMTUD_DISABLE,
  ReceiveInfo,
  SENDV_SNDINFO,
  SendFlag,
  SendInfo,
  SHUT_WR,
  SO_LINGER,
  SO_RCVBUF,
  SO_SNDBUF,
  SOCK_STREAM,
  SOL_SOCKET,
  SockaddrConn,
  Status,
} from './layouts.ts';
import type { UsrsctpStack } from './stack.ts';

const EINPROGRESS = 115;
const ENOMEM = 12;

export interface UsrsctpOptions extends AssociationOptions {
  /** Bytes of the largest SCTP packet. */
  readonly packetBytes: number;
}

/** Bytes of a packet before the first message: SCTP's common header and that of the DATA chunk. */
const DATA_HEADERS_BYTES = 28;
/** The library does not count the common header in a path's MTU. */
const COMMON_HEADER_BYTES = 12;

const EVENTS = [
  Notification.association,
  Notification.shutdown,
  Notification.adaptation,
  Notification.partialDelivery,
  Notification.senderDry,
];

/** Values of `Option.noDelay`. */
const DELAYS = words(0);
const SENDS_AT_ONCE = words(1);

// One call at a time, so all sockets share the memory of calls.
const sendInfo = new Uint8Array(SendInfo.bytes);
const sendFields = new DataView(sendInfo.buffer);
const from = new Uint8Array(SockaddrConn.bytes);
const fromFields = new DataView(from.buffer);
const receiveInfo = new Uint8Array(ReceiveInfo.bytes);
const receiveFields = new DataView(receiveInfo.buffer);
/** Lengths of `from` and of `receiveInfo`, the kind of the latter, and flags. */
const fromBytes = new Uint8Array(4);
const infoBytes = new Uint8Array(4);
const infoType = new Uint8Array(4);
const flags = new Uint8Array(4);
const flagsField = new DataView(flags.buffer);

/** Bytes of the longest message that is not fragmented in packets of `packetBytes`. */
export function unfragmentedBytes(packetBytes: number): number {
  return Math.floor((packetBytes - DATA_HEADERS_BYTES) / 4) * 4;
}

export class UsrsctpSocket implements AssociationSocket {
  /** Identifies it in the library. */
  readonly id: number;
  readonly #stack: UsrsctpStack;
  /** Messages shorter than a packet wait for more, or for an acknowledgement (Nagle's algorithm). */
  #delays = false;

  private constructor(stack: UsrsctpStack, id: number) {
    this.#stack = stack;
    this.id = id;
    const { library, upcall } = stack;
    library.set_non_blocking(id, 1);
    library.set_upcall(id, upcall, 0);
  }

  /** An unbound socket. Throws `SystemCallError`. */
  static open(stack: UsrsctpStack, options: UsrsctpOptions): UsrsctpSocket {
    const { library } = stack;
    const id = Number(library.socket(AF_CONN, SOCK_STREAM, IPPROTO_SCTP, null, null, 0, null));
    if (id === 0) throw new SystemCallError('usrsctp_socket', lastErrno() || ENOMEM);
    const socket = new UsrsctpSocket(stack, id);
    try {
      socket.#configure(options);
    } catch (error) {
      socket.close();
      throw error;
    }
    return socket;
  }

  /** Binds a port, for the path `token` or, with 0, for all. Throws `SystemCallError` EADDRINUSE. */
  bind(token: number, port: number): void {
    const name = connAddress(token, port);
    this.#check('usrsctp_bind', this.#stack.library.bind(this.id, name, name.length));
  }

  listen(backlog: number): void {
    this.#check('usrsctp_listen', this.#stack.library.listen(this.id, backlog));
  }

  /** Accepts a pending association, with the token of its path; undefined if there is none. */
  accept():
    | { readonly socket: UsrsctpSocket; readonly token: number; readonly port: number }
    | undefined {
    setLength(fromBytes, from.length);
    const id = Number(this.#stack.library.accept(this.id, from, fromBytes));
    if (id === 0) return undefined;
    const token = Number(fromFields.getBigUint64(SockaddrConn.token, true));
    const port = fromFields.getUint16(SockaddrConn.port);
    return { socket: new UsrsctpSocket(this.#stack, id), token, port };
  }

  /** Starts an association with a port of the path's peer. Throws `SystemCallError`. */
  connect(token: number, port: number): void {
    const name = connAddress(token, port);
    const result = this.#stack.library.connect(this.id, name, name.length);
    if (result < 0 && lastErrno() !== EINPROGRESS) this.#check('usrsctp_connect', result);
  }

  send(streamId: number, kind: SctpMessageKind, bytes: Uint8Array): number {
    const { unordered, acknowledgeAtOnce, payloadProtocol, followed = false } = kind;
    if (followed !== this.#delays) this.#setDelays(followed);
    const asked =
      (unordered ? SendFlag.unordered : 0) | (acknowledgeAtOnce ? SendFlag.acknowledgeAtOnce : 0);
    sendFields.setUint16(SendInfo.streamId, streamId, true);
    sendFields.setUint16(SendInfo.flags, asked, true);
    sendFields.setUint32(SendInfo.payloadProtocol, payloadProtocol);
    const sent = this.#stack.library.sendv(
      this.id,
      bytes,
      bytes.length,
      null,
      0,
      sendInfo,
      sendInfo.length,
      SENDV_SNDINFO,
      0,
    );
    return sent < 0 ? -lastErrno() : sent;
  }

  receive(area: ReceiveArea, start: number): number {
    setLength(fromBytes, from.length);
    setLength(infoBytes, receiveInfo.length);
    flagsField.setUint32(0, 0);
    const length = this.#stack.library.recvv(
      this.id,
      area.address + start,
      area.bytes.length - start,
      from,
      fromBytes,
      receiveInfo,
      infoBytes,
      infoType,
      flags,
    );
    return length < 0 ? -lastErrno() : Number(length);
  }

  get received(): ReceivedFacts {
    return received;
  }

  readEvent(area: ReceiveArea, length: number): SctpEvent {
    return readEvent(area, length, Notification);
  }

  get writable(): boolean {
    return (this.#stack.library.get_events(this.id) & EVENT_WRITE) !== 0;
  }

  /** Number of unacknowledged messages, sent or not. */
  get unacknowledged(): number {
    const bytes = new Uint8Array(Status.bytes);
    const length = words(bytes.length);
    this.#stack.library.getsockopt(this.id, IPPROTO_SCTP, Option.status, bytes, length);
    const status = new DataView(bytes.buffer);
    return status.getUint16(Status.unacknowledged, true) + status.getUint16(Status.pending, true);
  }

  /** Lowers the size of the largest packet of an established association; does nothing if it has ended. */
  lowerPacketBytes(packetBytes: number): void {
    this.#trySet(IPPROTO_SCTP, Option.peerAddressParameters, pathParameters(packetBytes));
  }

  /** Sends heartbeats this long after the last reply, if nothing else is sent. */
  setHeartbeat(intervalMs: number): void {
    const bytes = new Uint8Array(PathParameters.bytes);
    const fields = new DataView(bytes.buffer);
    fields.setUint16(0, AF_CONN, true);
    fields.setUint32(PathParameters.heartbeat, intervalMs, true);
    fields.setUint32(PathParameters.flags, HEARTBEAT_ENABLE, true);
    this.#trySet(IPPROTO_SCTP, Option.peerAddressParameters, bytes);
  }

  shutdown(): void {
    this.#stack.library.shutdown(this.id, SHUT_WR);
  }

  abort(): void {
    this.#trySet(SOL_SOCKET, SO_LINGER, words(1, 0));
    this.close();
  }

  close(): void {
    this.#stack.library.close(this.id);
  }

  #setDelays(delays: boolean): void {
    this.#delays = delays;
    this.#trySet(IPPROTO_SCTP, Option.noDelay, delays ? DELAYS : SENDS_AT_ONCE);
  }

  #configure(options: UsrsctpOptions): void {
    const { adaptation, streamCount, sendBytes, receiveBytes, packetBytes } = options;
    const streams = new DataView(new ArrayBuffer(8));
    streams.setUint16(0, streamCount, true);
    streams.setUint16(2, streamCount, true);
    this.#set(IPPROTO_SCTP, Option.initMessage, new Uint8Array(streams.buffer));
    this.#set(IPPROTO_SCTP, Option.noDelay, words(1));
    this.#set(IPPROTO_SCTP, Option.adaptationLayer, words(adaptation));
    this.#set(IPPROTO_SCTP, Option.receiveInfo, words(1));
    this.#set(IPPROTO_SCTP, Option.fragmentInterleave, words(0));
    this.#set(SOL_SOCKET, SO_SNDBUF, words(sendBytes));
    this.#set(SOL_SOCKET, SO_RCVBUF, words(receiveBytes));
    this.#set(IPPROTO_SCTP, Option.peerAddressParameters, pathParameters(packetBytes));
    for (const type of EVENTS) {
      const event = new Uint8Array(8);
      event[4] = type;
      event[6] = 1;
      this.#set(IPPROTO_SCTP, Option.event, event);
    }
  }

  #set(level: number, name: number, value: Uint8Array): void {
    this.#check(`usrsctp_setsockopt ${name}`, this.#trySet(level, name, value));
  }

  #trySet(level: number, name: number, value: Uint8Array): number {
    return this.#stack.library.setsockopt(this.id, level, name, value, value.length);
  }

  #check(call: string, result: number): void {
    if (result < 0) throw new SystemCallError(call, lastErrno());
  }
}

/** Information about the last `receive`. */
const received: ReceivedFacts = {
  get isNotification(): boolean {
    return (flagsField.getUint32(0, true) & MSG_NOTIFICATION) !== 0;
  },
  get isEnd(): boolean {
    return (flagsField.getUint32(0, true) & MSG_EOR) !== 0;
  },
  get streamId(): number {
    return receiveFields.getUint16(ReceiveInfo.streamId, true);
  },
  get unordered(): boolean {
    return (receiveFields.getUint16(ReceiveInfo.flags, true) & SendFlag.unordered) !== 0;
  },
  get payloadProtocol(): number {
    return receiveFields.getUint32(ReceiveInfo.payloadProtocol);
  },
};

function connAddress(token: number, port: number): Uint8Array {
  const name = new Uint8Array(SockaddrConn.bytes);
  const fields = new DataView(name.buffer);
  fields.setUint16(0, AF_CONN, true);
  fields.setUint16(SockaddrConn.port, port);
  fields.setBigUint64(SockaddrConn.token, BigInt(token), true);
  return name;
}

function pathParameters(packetBytes: number): Uint8Array {
  const value = new Uint8Array(PathParameters.bytes);
  const fields = new DataView(value.buffer);
  fields.setUint16(0, AF_CONN, true);
  fields.setUint32(PathParameters.mtu, packetBytes - COMMON_HEADER_BYTES, true);
  fields.setUint32(PathParameters.flags, PMTUD_DISABLE, true);
  return value;
}

/** Numbers as C's ints. */
function words(...values: number[]): Uint8Array {
  const bytes = new Uint8Array(values.length * 4);
  const fields = new DataView(bytes.buffer);
  for (const [index, value] of values.entries()) fields.setUint32(index * 4, value, true);
  return bytes;
}

function setLength(target: Uint8Array, length: number): void {
  target[0] = length;
  target[1] = 0;
  target[2] = 0;
  target[3] = 0;
}
