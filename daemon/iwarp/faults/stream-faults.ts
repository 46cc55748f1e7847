/**
 * Applies the faults of one connection to the output of its stream and the input from its socket.
 * Pure: time is an argument, and further actions are outcomes.
 */
import type { FaultOpcode, FaultSpec } from '../../../verbs-api/contract/protocol/faults.ts';
import type { ConnectionFacts, Fault } from '../../faults/fault.ts';
import { type Micros, NEVER } from '../../rnic/wire-port.ts';
import type { Crc32c } from '../wire/crc32c.ts';
import { advertisesDepths, canCorrupt, corrupt, lowerDepths } from './corruption.ts';
import { type Hold, Lane } from './lane.ts';
import type { Framing, OutputWalk, Passage } from './passage.ts';

const NO_FAULTS: readonly Fault[] = [];

/** The effects of faults on one piece. */
interface Meeting {
  readonly holds: Hold[];
  pieceBytes: number;
  /** Position and kind of the connection's end within the piece. */
  end: { readonly at: number; readonly how: 'reset' | 'close' } | undefined;
}

/** See the module's comment. */
export class StreamFaults {
  readonly outbound = new Lane();
  readonly inbound = new Lane();
  readonly #walk: OutputWalk;
  readonly #facts: () => ConnectionFacts;
  readonly #crc32c: Crc32c;
  #faults: readonly Fault[] = NO_FAULTS;
  #outcomes: Fault[] = [];

  constructor(walk: OutputWalk, facts: () => ConnectionFacts, crc32c: Crc32c) {
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
  handleOutput(bytes: Uint8Array, framing: Framing, now: Micros): void {
    let start = 0;
    while (start < bytes.length) {
      const passage = this.#walk.next(bytes.subarray(start), framing);
      const piece = bytes.subarray(start, start + passage.bytes);
      this.#spoil(piece, passage, framing);
      this.#pass(this.outbound, 'out', piece, passage.opcode, now);
      start += passage.bytes;
    }
  }

  /** Bytes from the socket, which are copied. */
  handleInput(bytes: Uint8Array, now: Micros): void {
    this.#pass(this.inbound, 'in', bytes.slice(), undefined, now);
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
        if (passage.startup && advertisesDepths(piece) && fault.strikes()) {
          lowerDepths(piece, spec.ird, spec.ord);
        }
      } else if (passage.startup || !canCorrupt(spec.kind, piece, passage, framing)) continue;
      else if (!fault.strikes()) continue;
      else if (place === 'event' || spec.kind === 'terminate') this.#outcomes.push(fault);
      else corrupt(spec.kind, piece, passage, framing, this.#crc32c);
    }
  }

  // How the bytes pass

  #pass(
    lane: Lane,
    direction: 'in' | 'out',
    bytes: Uint8Array,
    opcode: FaultOpcode | undefined,
    now: Micros,
  ): void {
    const meeting: Meeting = { holds: [], pieceBytes: bytes.length, end: undefined };
    const facts = this.#facts();
    for (const fault of this.#faults) {
      if (fault.coversPassage(facts, direction, opcode)) {
        meet(fault, lane, meeting, bytes.length, { direction, opcode, now });
      }
    }
    const { holds, pieceBytes, end } = meeting;
    if (end === undefined) {
      lane.push(bytes, holds, pieceBytes);
      return;
    }
    lane.push(bytes.subarray(0, end.at), holds, pieceBytes);
    lane.end(end.how);
    if (end.at < bytes.length) lane.push(bytes.subarray(end.at), holds, pieceBytes);
  }
}

/** Adds the effect of one matching fault to a meeting. */
function meet(
  fault: Fault,
  lane: Lane,
  meeting: Meeting,
  bytes: number,
  what: { direction: 'in' | 'out'; opcode: FaultOpcode | undefined; now: Micros },
): void {
  const { spec, place } = fault;
  const { now } = what;
  if (place === 'direction') {
    const at = lane.cutBy(fault, bytes, spec.afterBytes ?? 0);
    if (at === undefined || at >= (meeting.end?.at ?? Number.POSITIVE_INFINITY)) return;
    meeting.end = { at, how: spec.kind === 'reset' ? 'reset' : 'close' };
    return;
  }
  if (place === 'reply' && (what.direction === 'in' || what.opcode !== 'mpa-reply')) return;
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
