/**
 * Applies the faults of one connection to the output of its stream and the input from its socket.
 * Pure: time is an argument, and further actions are outcomes.
 */
import type { FaultOpcode, FaultSpec } from '#contract/protocol/faults';
import type { ConnectionFacts, Fault } from '#daemon/faults/fault';
import { type Micros, NEVER } from '#daemon/rnic/wire-port';
import type { Crc32c } from '../wire/crc32c.ts';
import { canCorrupt, corrupt } from './corruption.ts';
import { lowerDepths } from './depths.ts';
import { type Hold, Lane } from './lane.ts';
import type { Framing, Passage, Walk } from './passage.ts';

const NO_FAULTS: readonly Fault[] = [];

/** A piece on its way. */
interface Piece {
  readonly opcode: FaultOpcode | undefined;
  /** Of a message of SCTP; 0 for bytes of TCP. */
  readonly payloadProtocol: number;
  readonly now: Micros;
}

/** The effects of faults on one piece. */
interface Meeting {
  readonly holds: Hold[];
  pieceBytes: number;
  /** Position and kind of the connection's end within the piece. */
  end: { readonly at: number; readonly how: 'reset' | 'close' } | undefined;
}

export class StreamFaults {
  readonly outbound = new Lane();
  readonly inbound = new Lane();
  readonly #walk: Walk;
  readonly #facts: () => ConnectionFacts;
  readonly #crc32c: Crc32c;
  #faults: readonly Fault[] = NO_FAULTS;
  #outcomes: Fault[] = [];

  constructor(walk: Walk, facts: () => ConnectionFacts, crc32c: Crc32c) {
    this.#walk = walk;
    this.#facts = facts;
    this.#crc32c = crc32c;
  }

  /** These faults apply from now on; bytes that others held back are released. */
  setFaults(faults: readonly Fault[]): void {
    this.#faults = faults;
    this.outbound.keepHoldsOf(faults);
    this.inbound.keepHoldsOf(faults);
  }

  /** True if no fault is active, and none left anything behind. */
  get idle(): boolean {
    return (
      this.#faults.length === 0 &&
      this.outbound.empty &&
      this.inbound.empty &&
      !this.outbound.ended &&
      !this.inbound.ended
    );
  }

  /** Output of the stream: whole pieces, borrowed, and changed in place by faults. */
  handleOutput(bytes: Uint8Array, framing: Framing, now: Micros, payloadProtocol = 0): void {
    let start = 0;
    while (start < bytes.length) {
      const passage = this.#walk.next(bytes.subarray(start), framing, payloadProtocol);
      const piece = bytes.subarray(start, start + passage.bytes);
      this.#spoil(piece, passage, framing);
      this.#pass('out', piece, { opcode: passage.opcode, payloadProtocol, now });
      start += passage.bytes;
    }
  }

  /** Bytes from the socket, or one message, which are copied. */
  handleInput(bytes: Uint8Array, now: Micros, payloadProtocol = 0): void {
    this.#pass('in', bytes.slice(), { opcode: undefined, payloadProtocol, now });
  }

  /** A fault that fired and requires more than changed bytes: the caller acts on it. */
  pollOutcome(): Fault | undefined {
    return this.#outcomes.shift();
  }

  /** When a lane has output next. */
  nextDeadline(): Micros {
    return Math.min(this.outbound.nextDeadline(), this.inbound.nextDeadline());
  }

  /** True if waiting output only waits for time. */
  get drains(): boolean {
    return this.outbound.nextDeadline() < NEVER;
  }

  // What is in the bytes

  #spoil(piece: Uint8Array, passage: Passage, framing: Framing): void {
    const facts = this.#facts();
    for (const fault of this.#faults) {
      const { place, spec } = fault;
      if (place !== 'fpdu' && place !== 'event' && place !== 'depths') continue;
      if (!fault.coversPassage(facts, 'out', passage.opcode)) continue;
      if (place === 'depths') {
        const { depthsAt } = passage;
        if (depthsAt !== undefined && fault.strikes()) {
          lowerDepths(piece, depthsAt, spec.ird, spec.ord);
        }
      } else if (passage.startup || !canCorrupt(spec.kind, piece, passage, framing)) continue;
      else if (!fault.strikes()) continue;
      else if (place === 'event' || spec.kind === 'terminate') this.#outcomes.push(fault);
      else corrupt(spec.kind, piece, passage, framing, this.#crc32c);
    }
  }

  // How the bytes pass

  #pass(direction: 'in' | 'out', bytes: Uint8Array, what: Piece): void {
    const lane = direction === 'in' ? this.inbound : this.outbound;
    const meeting: Meeting = { holds: [], pieceBytes: bytes.length, end: undefined };
    const facts = this.#facts();
    for (const fault of this.#faults) {
      if (!fault.coversPassage(facts, direction, what.opcode)) continue;
      meet(fault, lane, meeting, bytes.length, direction, what);
    }
    const { holds, pieceBytes, end } = meeting;
    const { payloadProtocol } = what;
    if (end === undefined) {
      lane.push(bytes, holds, pieceBytes, payloadProtocol);
      return;
    }
    // A message is sent whole or not at all.
    const cut = payloadProtocol !== 0 && end.at < bytes.length ? 0 : end.at;
    lane.push(bytes.subarray(0, cut), holds, pieceBytes, payloadProtocol);
    lane.end(end.how);
    if (cut < bytes.length) lane.push(bytes.subarray(cut), holds, pieceBytes, payloadProtocol);
  }
}

/** Adds the effect of one matching fault to a meeting. */
function meet(
  fault: Fault,
  lane: Lane,
  meeting: Meeting,
  bytes: number,
  direction: 'in' | 'out',
  what: Piece,
): void {
  const { spec, place } = fault;
  const { now } = what;
  if (place === 'direction') {
    const at = lane.cutBy(fault, bytes, spec.afterBytes ?? 0);
    if (at === undefined || at >= (meeting.end?.at ?? Number.POSITIVE_INFINITY)) return;
    meeting.end = { at, how: spec.kind === 'reset' ? 'reset' : 'close' };
    return;
  }
  if (place === 'reply' && (direction === 'in' || what.opcode !== 'mpa-reply')) return;
  if ((place !== 'bytes' && place !== 'reply') || !fault.strikes()) return;
  if (spec.kind === 'bandwidth') {
    meeting.holds.push(lane.paced(fault, bytes, spec.bytesPerSecond ?? 1, now));
  } else if (spec.kind === 'slice') {
    meeting.pieceBytes = Math.min(meeting.pieceBytes, spec.bytes ?? bytes);
  } else meeting.holds.push({ fault, due: heldUntil(spec, now) });
}

/**
 * Delays are limited in time; a stall and a silent Reply without a time last as long as their
 * fault.
 */
function heldUntil({ ms }: FaultSpec, now: Micros): Micros {
  return ms === undefined ? NEVER : now + ms * 1000;
}
