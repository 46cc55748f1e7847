/** The page's state. Every part is replaced, never mutated. */
import type {
  ConnectionSummary,
  CQSummary,
  MRSummary,
  QPSummary,
} from '#contract/protocol/control';
import type { FaultStatus } from '#contract/protocol/faults';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import type { Refusal } from '#contract/protocol/refusals';
import type { Sample } from './timeline-layout.ts';

/** Holds a state whose parts are replaced, never mutated. */
class Store<S extends object> {
  #state: S;
  readonly #listeners = new Set<(state: S) => void>();

  constructor(initial: S) {
    this.#state = initial;
  }

  get state(): Readonly<S> {
    return this.#state;
  }

  /** Replaces some parts and notifies subscribers. */
  update(changes: Partial<S>): void {
    this.#state = { ...this.#state, ...changes };
    for (const listener of this.#listeners) listener(this.#state);
  }

  /** Calls `show` now, and whenever the result of `select` changes. */
  watch<P>(select: (state: Readonly<S>) => P, show: (part: P) => void): void {
    let shown = select(this.#state);
    show(shown);
    this.#listeners.add((state) => {
      const part = select(state);
      if (Object.is(part, shown)) return;
      shown = part;
      show(part);
    });
  }
}

/** The state of the connection to the daemon. */
export type PageLink =
  | { readonly phase: 'connecting' | 'live' | 'paused' }
  /** Not answering since this time, in milliseconds since 1970. */
  | { readonly phase: 'lost'; readonly since: number; readonly reason: string }
  | { readonly phase: 'denied'; readonly reason: string };

export type ListName = 'qps' | 'connections' | 'cqs' | 'mrs' | 'clients';

/** The last refusals, oldest first, of the total when they were requested. */
interface RecentRefusals {
  readonly total: number;
  readonly last: readonly Refusal[];
}

export interface PageState {
  readonly link: PageLink;
  readonly status: DaemonStatus | undefined;
  readonly list: ListName;
  readonly qps: readonly QPSummary[];
  readonly connections: readonly ConnectionSummary[];
  readonly cqs: readonly CQSummary[];
  readonly mrs: readonly MRSummary[];
  readonly faults: readonly FaultStatus[];
  readonly refusals: RecentRefusals;
  readonly recording: boolean;
  /** The recorded samples, oldest first. */
  readonly samples: readonly Sample[];
  /** Why recording is interrupted. */
  readonly recordingError: string | undefined;
}

export type PageStore = Store<PageState>;

export function newPageStore(): PageStore {
  return new Store<PageState>({
    link: { phase: 'connecting' },
    status: undefined,
    list: 'qps',
    qps: [],
    connections: [],
    cqs: [],
    mrs: [],
    faults: [],
    refusals: { total: 0, last: [] },
    recording: false,
    samples: [],
    recordingError: undefined,
  });
}
