/**
 * Polls the daemon once a second while the page is visible. A poll fetches the status and the
 * visible list; faults only while there are any, refusals only after there were new ones.
 */
import type { ApiClient } from './api-client.ts';
import { ApiError } from './api-client.ts';
import type { ListName, PageState, PageStore } from './page-state.ts';
import type { RateHistory } from './rates.ts';

const INTERVAL_MS = 1000;
/** Minimum pause after a slow response. */
const MIN_PAUSE_MS = 100;

/** Maximum rows per list; use the command line to see more. */
export const LIST_ROWS_MAX = 200;
/** Show this many of the latest refusals; `iwarpd explain` prints more. */
const REFUSALS_SHOWN_MAX = 100;

export class Poller {
  readonly #store: PageStore;
  readonly #api: ApiClient;
  readonly #rates: RateHistory;
  #timer: number | undefined;
  #looking = false;
  /** A poll was requested while one is in progress. */
  #again = false;

  constructor(store: PageStore, api: ApiClient, rates: RateHistory) {
    this.#store = store;
    this.#api = api;
    this.#rates = rates;
    document.addEventListener('visibilitychange', () => this.#visibilityChanged());
    store.watch(
      ({ list }) => list,
      () => this.lookNow(),
    );
  }

  /** Polls now, and every second from then on. */
  lookNow(): void {
    if (document.hidden) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#looking) this.#again = true;
    else void this.#look();
  }

  #visibilityChanged(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!document.hidden) {
      this.lookNow();
      return;
    }
    this.#pause();
  }

  /** The pause before the next poll must not count in any rate. */
  #pause(): void {
    this.#rates.interrupt();
    if (this.#store.state.link.phase === 'live') this.#store.update({ link: { phase: 'paused' } });
  }

  async #look(): Promise<void> {
    this.#looking = true;
    const begun = performance.now();
    try {
      this.#store.update(await this.#seen());
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#looking = false;
      this.#schedule(begun + INTERVAL_MS);
    }
  }

  /** Schedules the next poll at `due`, or now if one was requested. */
  #schedule(due: number): void {
    const wanted = this.#again;
    this.#again = false;
    if (document.hidden) {
      this.#pause();
      return;
    }
    // With a wrong token every poll fails: wait until the user enters another one.
    if (this.#store.state.link.phase === 'denied' && !wanted) return;
    const delay = wanted ? 0 : Math.max(MIN_PAUSE_MS, due - performance.now());
    this.#timer = setTimeout(() => void this.#look(), delay);
  }

  async #seen(): Promise<Partial<PageState>> {
    const { list, faults } = this.#store.state;
    const [status, listed] = await Promise.all([
      this.#api.call('status', {}).then((value) => ({ value, at: performance.now() / 1000 })),
      this.#listed(list),
    ]);
    const { value, at } = status;
    this.#rates.look(at, value.devices, `${value.pid} ${value.socketPath}`);
    const known =
      value.faults > 0 || faults.length > 0 ? await this.#api.call('listFaults', {}) : faults;
    const refusals = await this.#refusals(value.refusals);
    return { link: { phase: 'live' }, status: value, faults: known, refusals, ...listed };
  }

  /** Requested again only after new ones, or a reset. */
  async #refusals(total: number): Promise<PageState['refusals']> {
    const known = this.#store.state.refusals;
    if (total === known.total) return known;
    const { refusals } = await this.#api.call('listRefusals', { limit: REFUSALS_SHOWN_MAX });
    return { total, last: refusals };
  }

  async #listed(list: ListName): Promise<Partial<PageState>> {
    const window = { limit: LIST_ROWS_MAX };
    switch (list) {
      case 'qps':
        return { qps: await this.#api.call('listQPs', window) };
      case 'connections':
        return { connections: await this.#api.call('listConnections', window) };
      case 'cqs':
        return { cqs: await this.#api.call('listCQs', window) };
      case 'mrs':
        return { mrs: await this.#api.call('listMRs', window) };
      case 'clients':
        // These are in the status.
        return {};
      default:
        return list satisfies never;
    }
  }

  #failed(error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.#rates.interrupt();
    const { link } = this.#store.state;
    const reason = error.message;
    if (error.failure === 'denied') {
      this.#store.update({ link: { phase: 'denied', reason } });
      return;
    }
    const since = link.phase === 'lost' ? link.since : Date.now();
    this.#store.update({ link: { phase: 'lost', since, reason } });
  }
}
