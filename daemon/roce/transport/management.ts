/**
 * The wire of QP 1, the general service interface of a port: management datagrams (MADs) from QP 1 to QP 1 of
 * other ports, each in one UD packet (IBTA 13.5.3).
 *
 * Programs cannot reach it: packets are dropped unless they come from a QP 1 with its key.
 */
import { type Micros, NEVER } from '#base/time';
import type { OutboundMessage } from '#daemon/rnic/wire-port';
import { GSI_QKEY, GSI_QPN, MAD_BYTES } from '../wire/mad.ts';
import { PacketOperation, Service } from '../wire/opcode.ts';
import { Packet, packetBytes, writeHeaders } from '../wire/packet.ts';
import { addPsn } from '../wire/psn.ts';
import type { PacketWire } from './packet-wire.ts';

/** Limit of queued MADs. More are dropped, as by a network; senders repeat those that matter. */
const WAITING_MAX = 4096;
const SEND_ONLY = Service.ud | PacketOperation.sendOnly;

interface ManagementUser {
  /** Handles a MAD of another port and keeps its bytes. The GIDs are valid during the call. */
  handleMad(mad: Uint8Array, sourceGid: Uint8Array, destGid: Uint8Array): void;
}

interface Waiting {
  readonly address: NonNullable<OutboundMessage['address']>;
  readonly mad: Uint8Array;
}

export class ManagementWire implements PacketWire {
  readonly midSend = false;
  readonly timeouts = 0;
  readonly polledSpan = 1;
  badQkeys = 0;
  readonly rqPsn = 0;
  destination: OutboundMessage['address'] = undefined;
  readonly #user: ManagementUser;
  readonly #packet = new Packet();
  readonly #waiting: Waiting[] = [];
  #psn = 0;

  constructor(user: ManagementUser) {
    this.#user = user;
    const packet = this.#packet;
    packet.opcode = SEND_ONLY;
    packet.sourceQpn = GSI_QPN;
    packet.destQpn = GSI_QPN;
    packet.qkey = GSI_QKEY;
    packet.payloadLength = MAD_BYTES;
  }

  get sendable(): boolean {
    return true;
  }

  get sqPsn(): number {
    return this.#psn;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Queues a MAD. False if the queue is full. */
  send(address: Waiting['address'], mad: Uint8Array): boolean {
    if (this.#waiting.length >= WAITING_MAX) return false;
    this.#waiting.push({ address, mad });
    return true;
  }

  pollPacket(target: Uint8Array, start: number): number {
    const next = this.#waiting.shift();
    if (next === undefined) return 0;
    this.#packet.psn = this.#psn;
    this.#psn = addPsn(this.#psn, 1);
    target.set(next.mad, writeHeaders(target, start, this.#packet));
    this.destination = next.address;
    return packetBytes(this.#packet);
  }

  endPolling(): boolean {
    return true;
  }

  handlePacket(packet: Readonly<Packet>, bytes: Uint8Array, _now: Micros, grh: Uint8Array): void {
    const { opcode, qkey, sourceQpn, payloadStart, payloadLength } = packet;
    if (opcode !== SEND_ONLY || sourceQpn !== GSI_QPN) return;
    if (qkey !== GSI_QKEY) {
      this.badQkeys += 1;
      return;
    }
    const mad = bytes.slice(payloadStart, payloadStart + payloadLength);
    this.#user.handleMad(mad, gidIn(grh, 0), gidIn(grh, 1));
  }

  handleInputEnd(): void {}
  modified(): void {}
  pump(): void {}
  disconnect(): void {}
  abort(): void {}
  fail(): void {}
  handleDeadline(): void {}
  pollFailure(): undefined {
    return undefined;
  }
  nextDeadline(): Micros {
    return NEVER;
  }
}

const GID_BYTES = 16;
const IPV4_BYTES = 4;
const IPV6_VERSION = 6;
const IPV6_SOURCE_AT = 8;
/** An IPv4 header is in the second half of the 40 bytes. */
const IPV4_SOURCE_AT = 20 + 12;

/** The source (0) or destination (1) GID of a datagram. */
function gidIn(grh: Uint8Array, which: 0 | 1): Uint8Array {
  if ((grh[0] as number) >> 4 === IPV6_VERSION) {
    const at = IPV6_SOURCE_AT + which * GID_BYTES;
    return grh.slice(at, at + GID_BYTES);
  }
  const gid = new Uint8Array(GID_BYTES);
  gid.fill(0xff, 10, 12);
  const at = IPV4_SOURCE_AT + which * IPV4_BYTES;
  gid.set(grh.subarray(at, at + IPV4_BYTES), GID_BYTES - IPV4_BYTES);
  return gid;
}
