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
import { Store } from './store.ts';
import type { Sample } from './timeline-layout.ts';

/** The state of the connection to the daemon. */
export type PageLink =
  | { readonly phase: 'connecting' | 'live' | 'paused' }
  /** Not answering since this time, in milliseconds since 1970. */
  | { readonly phase: 'lost'; readonly since: number; readonly reason: string }
  | { readonly phase: 'denied'; readonly reason: string };

/** The available lists of objects. */
export type ListName = 'qps' | 'connections' | 'cqs' | 'mrs' | 'clients';

/** The last refusals, oldest first, of the total when they were requested. */
interface RecentRefusals {
  readonly total: number;
  readonly last: readonly Refusal[];
}

export interface PageState {
  readonly link: PageLink;
  readonly status: DaemonStatus | undefined;
  /** The visible list and its rows. */
  readonly list: ListName;
  readonly qps: readonly QPSummary[];
  readonly connections: readonly ConnectionSummary[];
  readonly cqs: readonly CQSummary[];
  readonly mrs: readonly MRSummary[];
  readonly faults: readonly FaultStatus[];
  readonly refusals: RecentRefusals;
  /** Whether the time line is being recorded. */
  readonly recording: boolean;
  /** The recorded samples, oldest first. */
  readonly samples: readonly Sample[];
  /** Why recording is interrupted. */
  readonly recordingError: string | undefined;
}

/** Holds the page's state. */
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
