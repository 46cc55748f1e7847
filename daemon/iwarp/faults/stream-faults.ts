/**
 * Applies the faults of one connection to the output of its stream and the input of its socket. Pure: time is
 * an argument, and effects on other objects are outcomes.
 */
import { type Micros, NEVER } from '#base/time';
import type { FaultOpcode, FaultSpec } from '#contract/protocol/faults';
import type { ConnectionFacts, Fault } from '#daemon/faults/fault';
import type { Crc32c } from '../wire/crc32c.ts';
import { canCorrupt, corrupt } from './corruption.ts';
import { lowerDepths } from './depths.ts';
import type { Frame, FrameReader, Framing } from './frame.ts';
import { type Hold, HoldQueue } from './hold-queue.ts';

const NO_FAULTS: readonly Fault[] = [];

/** Facts about one frame, or about received bytes. */
interface Traffic {
  readonly opcode: FaultOpcode | undefined;
  /** Payload protocol of an SCTP message; 0 on TCP. */
  readonly payloadProtocol: number;
  readonly now: Micros;
}

/** The effects of faults on one frame. */
interface Effects {
  readonly holds: Hold[];
  pieceBytes: number;
  /** How the connection ends, and after how many bytes of the frame. */
  end: { readonly at: number; readonly how: 'reset' | 'close' } | undefined;
}

export class StreamFaults {
  readonly outbound = new HoldQueue();
  readonly inbound = new HoldQueue();
  readonly #reader: FrameReader;
  readonly #facts: () => ConnectionFacts;
  readonly #crc32c: Crc32c;
  #faults: readonly Fault[] = NO_FAULTS;
  #outcomes: Fault[] = [];

  constructor(reader: FrameReader, facts: () => ConnectionFacts, crc32c: Crc32c) {
    this.#reader = reader;
    this.#facts = facts;
    this.#crc32c = crc32c;
  }

  /** Replaces the faults, and releases bytes that removed ones held back. */
  setFaults(faults: readonly Fault[]): void {
    this.#faults = faults;
    this.outbound.keepHoldsOf(faults);
    this.inbound.keepHoldsOf(faults);
  }

  /** True if no fault is active or has effects left. */
  get idle(): boolean {
    return (
      this.#faults.length === 0 &&
      this.outbound.empty &&
      this.inbound.empty &&
      !this.outbound.ended &&
      !this.inbound.ended
    );
  }

  /** Handles output of the stream: whole frames, borrowed, and corrupted in place. */
  handleOutput(bytes: Uint8Array, framing: Framing, now: Micros, payloadProtocol = 0): void {
    let start = 0;
    while (start < bytes.length) {
      const frame = this.#reader.next(bytes.subarray(start), framing, payloadProtocol);
      const frameBytes = bytes.subarray(start, start + frame.bytes);
      this.#corrupt(frameBytes, frame, framing);
      this.#pass('out', frameBytes, { opcode: frame.opcode, payloadProtocol, now });
      start += frame.bytes;
    }
  }

  /** Handles bytes from the socket, or one message. Copies them. */
  handleInput(bytes: Uint8Array, now: Micros, payloadProtocol = 0): void {
    this.#pass('in', bytes.slice(), { opcode: undefined, payloadProtocol, now });
  }

  /** A fault that fired and that the caller must execute. */
  pollOutcome(): Fault | undefined {
    return this.#outcomes.shift();
  }

  /** When a queue has output next. */
  nextDeadline(): Micros {
    return Math.min(this.outbound.nextDeadline(), this.inbound.nextDeadline());
  }

  /** True if only time holds the output back. */
  get drains(): boolean {
    return this.outbound.nextDeadline() < NEVER;
  }

  // Contents

  #corrupt(frameBytes: Uint8Array, frame: Frame, framing: Framing): void {
    const facts = this.#facts();
    for (const fault of this.#faults) {
      const { place, spec } = fault;
      if (place !== 'fpdu' && place !== 'event' && place !== 'depths') continue;
      if (!fault.coversTraffic(facts, 'out', frame.opcode)) continue;
      if (place === 'depths') {
        const { depthsAt } = frame;
        if (depthsAt !== undefined && fault.fires()) {
          lowerDepths(frameBytes, depthsAt, spec.ird, spec.ord);
        }
      } else if (frame.startup || !canCorrupt(spec.kind, frameBytes, frame, framing)) continue;
      else if (!fault.fires()) continue;
      else if (place === 'event' || spec.kind === 'terminate') this.#outcomes.push(fault);
      else corrupt(spec.kind, frameBytes, frame, framing, this.#crc32c);
    }
  }

  // Timing

  #pass(direction: 'in' | 'out', bytes: Uint8Array, traffic: Traffic): void {
    const queue = direction === 'in' ? this.inbound : this.outbound;
    const effects: Effects = { holds: [], pieceBytes: bytes.length, end: undefined };
    const facts = this.#facts();
    for (const fault of this.#faults) {
      if (!fault.coversTraffic(facts, direction, traffic.opcode)) continue;
      addEffect(fault, queue, effects, bytes.length, direction, traffic);
    }
    const { holds, pieceBytes, end } = effects;
    const { payloadProtocol } = traffic;
    if (end === undefined) {
      queue.push(bytes, holds, pieceBytes, payloadProtocol);
      return;
    }
    // A message is sent whole or not at all.
    const cut = payloadProtocol !== 0 && end.at < bytes.length ? 0 : end.at;
    queue.push(bytes.subarray(0, cut), holds, pieceBytes, payloadProtocol);
    queue.end(end.how);
    if (cut < bytes.length) queue.push(bytes.subarray(cut), holds, pieceBytes, payloadProtocol);
  }
}

/** Adds the effect of one matching fault. */
function addEffect(
  fault: Fault,
  queue: HoldQueue,
  effects: Effects,
  bytes: number,
  direction: 'in' | 'out',
  traffic: Traffic,
): void {
  const { spec, place } = fault;
  const { now } = traffic;
  if (place === 'direction') {
    const at = queue.cutBy(fault, bytes, spec.afterBytes ?? 0);
    if (at === undefined || at >= (effects.end?.at ?? Number.POSITIVE_INFINITY)) return;
    effects.end = { at, how: spec.kind === 'reset' ? 'reset' : 'close' };
    return;
  }
  if (place === 'reply' && (direction === 'in' || traffic.opcode !== 'mpa-reply')) return;
  if ((place !== 'bytes' && place !== 'reply') || !fault.fires()) return;
  if (spec.kind === 'bandwidth') {
    effects.holds.push(queue.paced(fault, bytes, spec.bytesPerSecond ?? 1, now));
  } else if (spec.kind === 'slice') {
    effects.pieceBytes = Math.min(effects.pieceBytes, spec.bytes ?? bytes);
  } else effects.holds.push({ fault, due: heldUntil(spec, now) });
}

/** When a delay ends. A stall and a silent Reply without a time last as long as their fault. */
function heldUntil({ ms }: FaultSpec, now: Micros): Micros {
  return ms === undefined ? NEVER : now + ms * 1000;
}
