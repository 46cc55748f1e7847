/**
 * Records the time line: samples of the daemon's traffic, one per second, while "Record" is on and
 * the page is visible. Sampling costs the daemon time, so it is otherwise off.
 */
import { type ApiClient, ApiError } from './api-client.ts';
import type { PageStore } from './page-state.ts';

const SAMPLE_MS = 500;
const PAUSE_MS = 500;
/** Delay after a lost daemon or too many recorders. */
const RETRY_MS = 2000;
const SAMPLE_RECORDS = 150;
/** Maximum records stored; a drawing of more would be unreadable. */
const KEPT_RECORDS = 600;

export class Recorder {
  readonly #store: PageStore;
  readonly #api: ApiClient;
  #running = false;

  constructor(store: PageStore, api: ApiClient) {
    this.#store = store;
    this.#api = api;
    document.addEventListener('visibilitychange', () => this.#go());
    store.watch(
      ({ recording }) => recording,
      () => this.#go(),
    );
  }

  get #wanted(): boolean {
    return this.#store.state.recording && !document.hidden;
  }

  #go(): void {
    if (this.#running || !this.#wanted) return;
    this.#running = true;
    void this.#record().finally(() => {
      this.#running = false;
      this.#go();
    });
  }

  async #record(): Promise<void> {
    while (this.#wanted) {
      const pause = await this.#sample();
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** Takes a sample; returns the delay before the next one. */
  async #sample(): Promise<number> {
    const request = { limit: SAMPLE_RECORDS, ms: SAMPLE_MS };
    try {
      const { records } = await this.#api.call('recordTrace', request, SAMPLE_MS);
      const { samples } = this.#store.state;
      const all = records.length === 0 ? samples : keptOf([...samples, records]);
      this.#store.update({ samples: all, recordingError: undefined });
      return PAUSE_MS;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#store.update({ recordingError: error.message });
      return RETRY_MS;
    }
  }
}

/** The latest samples, up to the limit. */
function keptOf<S extends readonly unknown[]>(samples: readonly S[]): readonly S[] {
  let records = 0;
  let first = samples.length;
  while (first > 0) {
    records += samples[first - 1]?.length ?? 0;
    if (records > KEPT_RECORDS && first < samples.length) break;
    first -= 1;
  }
  return samples.slice(first);
}
