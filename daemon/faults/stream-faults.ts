/**
 * The faults of one connection at work: what its stream sends and what its socket brings goes in,
 * and comes out as the faults leave it. Pure: time is an argument, and what has to be done besides is
 * an outcome.
 */
import type { FaultOpcode, FaultSpec } from '../../verbs-api/contract/faults.ts';
import { type Micros, NEVER } from '../engine/stream-api.ts';
import type { Crc32c } from '../wire/crc32c.ts';
import { canCorrupt, corrupt, lowerDepths, tellsDepths } from './corruption.ts';
import type { ConnectionFacts, Fault } from './fault.ts';
import { type Hold, Lane } from './lane.ts';
import type { Framing, OutputWalk, Passage } from './passage.ts';

const NO_FAULTS: readonly Fault[] = [];

/** What the octets of one piece meet. */
interface Meeting {
  readonly holds: Hold[];
  pieceBytes: number;
  /** Where and how the connection ends within the piece. */
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

  /** These faults count from now on; what others held back goes on. */
  setFaults(faults: readonly Fault[]): void {
    this.#faults = faults;
    this.outbound.keepHoldsOf(faults);
    this.inbound.keepHoldsOf(faults);
  }

  /** No fault counts, and none has left anything behind. */
  get idle(): boolean {
    return (
      this.#faults.length === 0 &&
      this.outbound.empty &&
      this.inbound.empty &&
      !this.outbound.ended &&
      !this.inbound.ended
    );
  }

  /** Output of the stream: whole pieces, borrowed, and changed where a fault says so. */
  handleOutput(octets: Uint8Array, framing: Framing, now: Micros): void {
    let start = 0;
    while (start < octets.length) {
      const passage = this.#walk.next(octets.subarray(start), framing);
      const piece = octets.subarray(start, start + passage.bytes);
      this.#spoil(piece, passage, framing);
      this.#pass(this.outbound, 'out', piece, passage.opcode, now);
      start += passage.bytes;
    }
  }

  /** Octets from the socket, which are copied. */
  handleInput(octets: Uint8Array, now: Micros): void {
    this.#pass(this.inbound, 'in', octets.slice(), undefined, now);
  }

  /** An MPA Request came: true when a fault rejects it. */
  rejectsRequest(): boolean {
    return this.#faults.some((fault) => fault.place === 'request' && fault.strikes());
  }

  /** A fault that struck and wants more than octets changed: the caller does what it is about. */
  pollOutcome(): Fault | undefined {
    return this.#outcomes.shift();
  }

  /** When a lane has something next. */
  nextDeadline(): Micros {
    return Math.min(this.outbound.nextDeadline(), this.inbound.nextDeadline());
  }

  /** Whether what waits to leave does so by itself in time. */
  get drains(): boolean {
    return this.outbound.nextDeadline() < NEVER;
  }

  // What is in the octets

  #spoil(piece: Uint8Array, passage: Passage, framing: Framing): void {
    const facts = this.#facts();
    for (const fault of this.#faults) {
      const { place, spec } = fault;
      if (place !== 'fpdu' && place !== 'event' && place !== 'depths') continue;
      if (!fault.coversPassage(facts, 'out', passage.opcode)) continue;
      if (place === 'depths') {
        if (passage.startup && tellsDepths(piece) && fault.strikes()) {
          lowerDepths(piece, spec.ird, spec.ord);
        }
      } else if (passage.startup || !canCorrupt(spec.kind, piece, passage, framing)) continue;
      else if (!fault.strikes()) continue;
      else if (place === 'event' || spec.kind === 'terminate') this.#outcomes.push(fault);
      else corrupt(spec.kind, piece, passage, framing, this.#crc32c);
    }
  }

  // How the octets pass

  #pass(
    lane: Lane,
    direction: 'in' | 'out',
    octets: Uint8Array,
    opcode: FaultOpcode | undefined,
    now: Micros,
  ): void {
    const meeting: Meeting = { holds: [], pieceBytes: octets.length, end: undefined };
    const facts = this.#facts();
    for (const fault of this.#faults) {
      if (fault.coversPassage(facts, direction, opcode)) {
        meet(fault, lane, meeting, octets.length, { direction, opcode, now });
      }
    }
    const { holds, pieceBytes, end } = meeting;
    if (end === undefined) {
      lane.push(octets, holds, pieceBytes);
      return;
    }
    lane.push(octets.subarray(0, end.at), holds, pieceBytes);
    lane.end(end.how);
    if (end.at < octets.length) lane.push(octets.subarray(end.at), holds, pieceBytes);
  }
}

/** Adds to a meeting what one fault, which covers the piece, does to it. */
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
  if ((place !== 'octets' && place !== 'reply') || !fault.strikes()) return;
  if (spec.kind === 'bandwidth') {
    meeting.holds.push(lane.paced(fault, bytes, spec.bytesPerSecond ?? 1, now));
  } else if (spec.kind === 'slice') {
    meeting.pieceBytes = Math.min(meeting.pieceBytes, spec.bytes ?? bytes);
  } else meeting.holds.push({ fault, due: heldUntil(spec, now) });
}

/** Delays are for a time; a stall and a silent Reply without one last as long as their fault. */
function heldUntil({ ms }: FaultSpec, now: Micros): Micros {
  return ms === undefined ? NEVER : now + ms * 1000;
}
