/** What the page knows. Every part is replaced, never changed in place. */
import type {
  ConnectionSummary,
  CQSummary,
  MRSummary,
  QPSummary,
} from '../../verbs-api/contract/control.ts';
import type { FaultStatus } from '../../verbs-api/contract/faults.ts';
import type { DaemonStatus } from '../../verbs-api/contract/ipc-admin.ts';
import { Store } from './store.ts';
import type { Sample } from './timeline-layout.ts';

/** How the daemon is reached. */
export type Link =
  | { readonly phase: 'connecting' | 'live' | 'paused' }
  /** It does not answer since this time, in milliseconds since 1970. */
  | { readonly phase: 'lost'; readonly since: number; readonly reason: string }
  | { readonly phase: 'denied'; readonly reason: string };

/** Lists of objects that can be shown. */
export type ListName = 'qps' | 'connections' | 'cqs' | 'mrs' | 'clients';

/** See the module's comment. */
export interface PageState {
  readonly link: Link;
  readonly status: DaemonStatus | undefined;
  /** The list that is shown, and what it holds. */
  readonly list: ListName;
  readonly qps: readonly QPSummary[];
  readonly connections: readonly ConnectionSummary[];
  readonly cqs: readonly CQSummary[];
  readonly mrs: readonly MRSummary[];
  readonly faults: readonly FaultStatus[];
  /** The time line is being recorded. */
  readonly recording: boolean;
  /** What was recorded, oldest first. */
  readonly samples: readonly Sample[];
  /** Why the recording does not go on. */
  readonly recordingError: string | undefined;
}

/** Holds the page's state. */
export type PageStore = Store<PageState>;

/** The state of a page that has seen nothing. */
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
    recording: false,
    samples: [],
    recordingError: undefined,
  });
}
