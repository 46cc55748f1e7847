/** Samples of what passes in the daemon: a few at once, each for a bounded time. */
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import {
  TRACE_MS_DEFAULT,
  TRACE_SAMPLES_MAX,
  type TraceRequest,
  type TraceSample,
} from '../../verbs-api/contract/trace-sample.ts';
import type { TapHub } from '../capture/tap-hub.ts';
import { TraceSampler } from '../capture/trace-sampler.ts';
import type { WorkHub } from '../capture/work-hub.ts';
import type { Crc32c } from '../wire/crc32c.ts';

/** See the module's comment. */
export class TraceSamples {
  readonly #links: TapHub;
  readonly #work: WorkHub;
  readonly #crc32c: Crc32c;
  /** Each ends a sample that is under way. */
  readonly #running = new Set<() => void>();

  constructor(links: TapHub, work: WorkHub, crc32c: Crc32c) {
    this.#links = links;
    this.#work = work;
    this.#crc32c = crc32c;
  }

  /** Takes a sample. Rejects with EBUSY while `TRACE_SAMPLES_MAX` are being taken. */
  async record(request: TraceRequest): Promise<TraceSample> {
    if (this.#running.size >= TRACE_SAMPLES_MAX) {
      throw new VerbsError('EBUSY', `${TRACE_SAMPLES_MAX} traces are being recorded already`);
    }
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    // It goes on to the end of this turn, which is as precise as counting what is lost needs.
    const sampler = new TraceSampler({
      request,
      crc32c: this.#crc32c,
      nowMicros: () => Math.round((performance.timeOrigin + performance.now()) * 1000),
      onFull: finish,
    });
    const timer = setTimeout(finish, request.ms ?? TRACE_MS_DEFAULT);
    this.#running.add(finish);
    sampler.begin(this.#links, this.#work);
    await finished;
    clearTimeout(timer);
    this.#running.delete(finish);
    return sampler.end();
  }

  /** Ends all samples: each answers with what it has. */
  close(): void {
    for (const finish of this.#running) finish();
  }
}
