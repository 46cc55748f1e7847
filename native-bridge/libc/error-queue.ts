/**
 * Errors that the network reports for sent datagrams: ports without a listener, unreachable hosts,
 * datagrams that are too long for the path (IP_RECVERR, ip(7)).
 */
import { AF_INET, IPPROTO_IPV6, setOption } from './internet-socket.ts';
import { addressOf, libc, type MessageCall } from './libc.ts';

const recvmsg = libc.func('int64_t recvmsg(int fd, void *message, int flags)') as MessageCall;

const IPPROTO_IP = 0;
const IP_RECVERR = 11;
const IPV6_RECVERR = 25;
const MSG_ERRQUEUE_DONTWAIT = 0x2000 | 0x40;
/** struct msghdr: name, vector and control of a message. */
const Header = {
  bytes: 56,
  name: 0,
  nameBytes: 8,
  vector: 16,
  vectorCount: 24,
  control: 32,
  controlBytes: 40,
} as const;
const IOVEC_BYTES = 16;
/** Bytes stored of the datagram in error. */
const QUOTED_BYTES = 64;
const NAME_BYTES = 32;
const CONTROL_BYTES = 128;
/** Length, level and type of a control message. */
const CONTROL_HEADER_BYTES = 16;
/** struct sock_extended_err: errno, origin, and for EMSGSIZE the MTU. */
const [ORIGIN_AT, INFO_AT] = [4, 8];
const SO_EE_ORIGIN_LOCAL = 1;
const GID_BYTES = 16;

/** Makes the kernel queue the errors of a UDP socket for an `ErrorQueue`. Throws `SystemCallError`. */
export function keepErrors(fd: number, isIpv4: boolean): void {
  if (isIpv4) setOption(fd, IPPROTO_IP, IP_RECVERR, 1);
  else setOption(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
}

/** Reads the errors of sockets, one at a time. */
export class ErrorQueue {
  /** True if this host, not the network, reported the last error. */
  isLocal = false;
  /** The MTU that the last error reports, if it is EMSGSIZE. */
  mtuBytes = 0;
  readonly #message = new Uint8Array(
    Header.bytes + NAME_BYTES + CONTROL_BYTES + IOVEC_BYTES + QUOTED_BYTES,
  );
  readonly #fields = new DataView(this.#message.buffer);
  readonly #nameAt = Header.bytes;
  readonly #controlAt = Header.bytes + NAME_BYTES;
  readonly #quotedAt = Header.bytes + NAME_BYTES + CONTROL_BYTES + IOVEC_BYTES;
  #quotedBytes = 0;

  constructor() {
    const base = addressOf(this.#message);
    this.#fields.setBigUint64(Header.name, base + BigInt(this.#nameAt), true);
    this.#fields.setBigUint64(Header.control, base + BigInt(this.#controlAt), true);
    const vectorAt = this.#quotedAt - IOVEC_BYTES;
    this.#fields.setBigUint64(Header.vector, base + BigInt(vectorAt), true);
    this.#fields.setBigUint64(Header.vectorCount, 1n, true);
    this.#fields.setBigUint64(vectorAt, base + BigInt(this.#quotedAt), true);
    this.#fields.setBigUint64(vectorAt + 8, BigInt(QUOTED_BYTES), true);
  }

  /** The part of the datagram that the last error quotes, after its UDP header. Valid until the next `take`. */
  get quoted(): Uint8Array {
    return this.#message.subarray(this.#quotedAt, this.#quotedAt + this.#quotedBytes);
  }

  /** Removes the next error of a socket: its errno, or 0 if there is none. */
  take(fd: number): number {
    this.#fields.setUint32(Header.nameBytes, NAME_BYTES, true);
    this.#fields.setUint32(Header.controlBytes, CONTROL_BYTES, true);
    const length = recvmsg(fd, this.#message, MSG_ERRQUEUE_DONTWAIT);
    if (length < 0) return 0;
    this.#quotedBytes = Math.min(length, QUOTED_BYTES);
    return this.#errno();
  }

  /** The errno among the control messages; others describe the datagram that carried the error. */
  #errno(): number {
    const end = this.#controlAt + this.#fields.getUint32(Header.controlBytes, true);
    let at = this.#controlAt;
    while (at + CONTROL_HEADER_BYTES < end) {
      const level = this.#fields.getUint32(at + 8, true);
      const type = this.#fields.getUint32(at + 12, true);
      if (type === (level === IPPROTO_IP ? IP_RECVERR : IPV6_RECVERR)) {
        const error = at + CONTROL_HEADER_BYTES;
        this.isLocal = this.#fields.getUint8(error + ORIGIN_AT) === SO_EE_ORIGIN_LOCAL;
        this.mtuBytes = this.#fields.getUint32(error + INFO_AT, true);
        return this.#fields.getUint32(error, true);
      }
      at += (this.#fields.getUint32(at, true) + 7) & ~7;
    }
    return 0;
  }

  /** Writes the destination of the last error's datagram, with IPv4 mapped after ::ffff. */
  readDestination(gid: Uint8Array): number {
    const name = this.#message.subarray(this.#nameAt, this.#controlAt);
    if (name[0] === AF_INET) {
      gid.fill(0, 0, 10).fill(0xff, 10, 12);
      gid.set(name.subarray(4, 8), 12);
    } else {
      gid.set(name.subarray(8, 8 + GID_BYTES));
    }
    return this.#fields.getUint16(this.#nameAt + 2);
  }
}
