/** Two transports, and the packets between them, one at a time or through a custom network. */
import { QPState, QPType } from '#contract/verbs/enums';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import { RESET_PATH } from '#daemon/rnic/qp-attributes';
import {
  PACKET_BYTES_MAX,
  type PacketWire,
  type TransportFailure,
} from '#daemon/roce/transport/packet-wire';
import { makeWire, type PacketWireOptions } from '#daemon/roce/transport/transport';
import { mayBeAnswered, Packet, PacketRefusal, parsePacket } from '#daemon/roce/wire/packet';
import { ModelUser } from './model-user.ts';

const GRH = Uint8Array.from({ length: 40 }, (_, index) => 0xa0 + index);

/** `Packet.span` of polled packets that stand for several. */
const spans = new WeakMap<Uint8Array, number>();

/** One side: a wire, its queue pair, and its packets. */
export class TransportSide {
  readonly user: ModelUser;
  readonly wire: PacketWire;
  failure: TransportFailure | undefined = undefined;
  /** Payload that may stay whole, as within a host. */
  readonly #wholeBytes: number;
  readonly #buffer: Uint8Array;
  readonly #packet = new Packet();

  /** `user`: the queue pair, or how much memory a new one has. */
  constructor(user: number | ModelUser, options: Partial<PacketWireOptions>, wholeBytes = 0) {
    this.#wholeBytes = wholeBytes;
    this.#buffer = new Uint8Array(wholeBytes + PACKET_BYTES_MAX + 2).fill(0xa5);
    this.user = typeof user === 'number' ? new ModelUser('roce', user) : user;
    const base = { type: QPType.rc, qpn: 0x55, portMtuBytes: 1024 };
    this.wire = makeWire(this.user, { ...base, ...options });
  }

  /** The next packet, as its bytes. */
  poll(now: number): Uint8Array | undefined {
    const polled = this.wire.pollPacket(this.#buffer, 1, now, this.#wholeBytes);
    const whole = this.wire.endPolling();
    this.failure ??= this.wire.pollFailure();
    // As a host does: a packet that was taken back is polled again.
    if (!whole && polled > 0) return this.poll(now);
    if (polled === 0) return undefined;
    const bytes = this.#buffer.slice(1, 1 + polled);
    this.#buffer.fill(0xa5);
    if (this.wire.polledSpan > 1) spans.set(bytes, this.wire.polledSpan);
    return bytes;
  }

  /** All packets that leave now. */
  pollAll(now: number): Uint8Array[] {
    const packets: Uint8Array[] = [];
    for (let bytes = this.poll(now); bytes !== undefined; bytes = this.poll(now)) {
      packets.push(bytes);
    }
    return packets;
  }

  /** Receives a packet; its bytes are invalid afterwards. */
  receive(bytes: Uint8Array, now: number): void {
    const copy = bytes.slice();
    const refusal = parsePacket(copy, 0, copy.length, this.#packet, spans.get(bytes));
    if (!mayBeAnswered(refusal, this.#packet.opcode)) {
      throw new Error('a wire sent a packet that no wire takes');
    }
    this.wire.handlePacket(this.#packet, copy, now, GRH);
    this.wire.handleInputEnd(now);
    copy.fill(0x5a);
    this.failure ??= this.wire.pollFailure();
  }

  deadline(now: number): void {
    this.wire.handleDeadline(now);
    this.failure ??= this.wire.pollFailure();
  }
}

/** A packet, taken apart. */
export function parsed(bytes: Uint8Array | undefined): Packet {
  const packet = new Packet();
  if (bytes === undefined) throw new Error('there is no packet');
  if (parsePacket(bytes, 0, bytes.length, packet, spans.get(bytes)) !== PacketRefusal.none) {
    throw new Error('the packet is invalid');
  }
  return packet;
}

/** Attributes of a connection with small numbers; those of the other side are the same. */
export function pathOf(change: Partial<QPPath> = {}): QPPath {
  return {
    ...RESET_PATH,
    pathMtu: 1,
    timeout: 10,
    retryCnt: 3,
    rnrRetry: 7,
    rqPsn: 100,
    sqPsn: 100,
    maxRdAtomic: 4,
    maxDestRdAtomic: 4,
    minRnrTimer: 12,
    destQpNum: 0x55,
    qkey: 0x1111,
    ...change,
  };
}

/** Two sides, connected. */
export class TransportPair {
  readonly a: TransportSide;
  readonly b: TransportSide;
  now = 0;

  constructor(
    change: Partial<QPPath> = {},
    options: Partial<PacketWireOptions> = {},
    wholeBytes = 0,
  ) {
    this.a = new TransportSide(65536, options, wholeBytes);
    this.b = new TransportSide(65536, options, wholeBytes);
    for (const { wire } of [this.a, this.b]) {
      wire.modified(pathOf(change), QPState.RTR, 0);
      wire.modified(pathOf(change), QPState.RTS, 0);
    }
  }

  /** Passes packets both ways until none is left. */
  run(): void {
    for (let rounds = 0; rounds < 10_000; rounds += 1) {
      const fromA = this.a.poll(this.now);
      if (fromA !== undefined) this.b.receive(fromA, this.now);
      const fromB = this.b.poll(this.now);
      if (fromB !== undefined) this.a.receive(fromB, this.now);
      if (fromA === undefined && fromB === undefined) return;
    }
    throw new Error('the two never stop talking');
  }

  /** Passes all packets of `from` on to the other side. */
  pass(from: TransportSide): void {
    const to = from === this.a ? this.b : this.a;
    for (const bytes of from.pollAll(this.now)) to.receive(bytes, this.now);
  }

  lose(from: TransportSide): number {
    return from.pollAll(this.now).length;
  }

  /** Advances to the next deadline of `side`. */
  expire(side: TransportSide): void {
    this.now = side.wire.nextDeadline();
    side.deadline(this.now);
  }
}
