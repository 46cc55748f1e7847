/**
 * The faults of one host, grouped by place. A place without faults is `undefined`, the only check on the fast
 * path.
 */
import {
  FAULT_VERBS,
  type FaultPlace,
  type FaultSpec,
  type FaultVerb,
} from '#contract/protocol/faults';
import type { ErrnoCode } from '#contract/verbs/errors';
import { type ConnectionFacts, Fault, type FaultPeer } from './fault.ts';

/** Some faults, or undefined if there are none. */
type Faults = readonly Fault[] | undefined;

const STREAM_PLACES: readonly FaultPlace[] = [
  'bytes',
  'direction',
  'fpdu',
  'reply',
  'request',
  'depths',
];

const PACKET_PLACES: readonly FaultPlace[] = ['packet', 'packet-request'];

const VERBS: ReadonlySet<string> = new Set(FAULT_VERBS);

export class FaultInjector {
  /** Faults of connections, in the order in which they were added. */
  streams: Faults;
  packets: Faults;
  completions: Faults;
  notifications: Faults;
  receives: Faults;
  verbs: Faults;
  #faults: Fault[] = [];
  #lastId = 0;

  /** Adds a fault. `spec` has been checked, and has a seed if it has a probability. */
  add(spec: FaultSpec, peer: FaultPeer | undefined): Fault {
    this.#lastId += 1;
    const fault = new Fault(this.#lastId, spec, peer);
    this.#sort([...this.#faults, fault]);
    return fault;
  }

  /** Removes a fault; undefined if no fault has this number. */
  remove(id: number): Fault | undefined {
    const fault = this.#faults.find((each) => each.id === id);
    if (fault !== undefined) this.#sort(this.#faults.filter((each) => each !== fault));
    return fault;
  }

  get faults(): readonly Fault[] {
    return this.#faults;
  }

  /** Faults that can match a connection with these ends. */
  streamsOf(facts: ConnectionFacts): Faults {
    return orNothing(this.streams?.filter((fault) => fault.coversEnds(facts)) ?? []);
  }

  /** The first of `faults` that matches device and queue pair, and fires. */
  firstFiring(faults: Faults, device: string, qpNum?: number): Fault | undefined {
    return faults?.find(
      (fault) => fault.coversDevice(device) && fault.coversQp(qpNum) && fault.fires(),
    );
  }

  /** The error with which a verb fails; undefined if it does not. */
  verbFailure(
    verb: string,
    device: string | undefined,
    pid: number | undefined,
  ): { readonly code: ErrnoCode; readonly fault: Fault } | undefined {
    if (this.verbs === undefined || !VERBS.has(verb)) return undefined;
    for (const fault of this.verbs) {
      const { spec } = fault;
      const wanted = spec.verb ?? (verb as FaultVerb);
      const covered = wanted === verb && (spec.pid === undefined || spec.pid === pid);
      if (!covered || !fault.coversDevice(device) || spec.errno === undefined) continue;
      if (fault.fires()) return { code: spec.errno, fault };
    }
    return undefined;
  }

  #sort(faults: Fault[]): void {
    const at = (...places: FaultPlace[]): Faults =>
      orNothing(faults.filter(({ place }) => places.includes(place)));
    this.#faults = faults;
    this.streams = orNothing(
      faults.filter(
        ({ place, atOnce }) => STREAM_PLACES.includes(place) || (place === 'event' && !atOnce),
      ),
    );
    this.packets = orNothing(
      faults.filter(({ spec, place, atOnce }) => {
        const events = place === 'event' && !atOnce;
        return PACKET_PLACES.includes(place) || spec.kind === 'delay' || events;
      }),
    );
    this.completions = at('completion');
    this.notifications = at('notification');
    this.receives = at('receive');
    this.verbs = at('verb');
  }
}

function orNothing(faults: readonly Fault[]): Faults {
  return faults.length === 0 ? undefined : faults;
}
