/** Samples of the daemon's traffic: a few at a time, each for a limited time. */
import {
  TRACE_MS_DEFAULT,
  TRACE_SAMPLES_MAX,
  type TraceRequest,
  type TraceSample,
} from '#contract/protocol/trace-sample';
import { VerbsError } from '#contract/verbs/errors';
import type { TapHub } from '../capture/tap-hub.ts';
import type { WorkHub } from '../capture/work-hub.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Crc32 } from '../roce/wire/crc32.ts';

/** Loads the decoder of traffic; called once the daemon is ready. */
export function loadSampler(): Promise<typeof import('../capture/trace-sampler.ts')> {
  return import('../capture/trace-sampler.ts');
}

export class TraceSamples {
  readonly #links: TapHub;
  readonly #work: WorkHub;
  readonly #crc32c: Crc32c;
  readonly #crc32: Crc32;
  /** Each function ends a running sample. */
  readonly #running = new Set<() => void>();

  constructor(links: TapHub, work: WorkHub, crc32c: Crc32c, crc32: Crc32) {
    this.#links = links;
    this.#work = work;
    this.#crc32c = crc32c;
    this.#crc32 = crc32;
  }

  /** Takes a sample. Rejects with EBUSY if `TRACE_SAMPLES_MAX` are already running. */
  async record(request: TraceRequest): Promise<TraceSample> {
    if (this.#running.size >= TRACE_SAMPLES_MAX) {
      throw new VerbsError('EBUSY', `${TRACE_SAMPLES_MAX} traces are being recorded already`);
    }
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    this.#running.add(finish);
    let timer: NodeJS.Timeout | undefined;
    try {
      const { TraceSampler } = await loadSampler();
      // Runs to the end of this turn, which is precise enough to count losses.
      const sampler = new TraceSampler({
        request,
        crc32c: this.#crc32c,
        crc32: this.#crc32,
        nowMicros: () => Math.round((performance.timeOrigin + performance.now()) * 1000),
        onFull: finish,
      });
      timer = setTimeout(finish, request.ms ?? TRACE_MS_DEFAULT);
      sampler.begin(this.#links, this.#work);
      await finished;
      return sampler.end();
    } finally {
      clearTimeout(timer);
      this.#running.delete(finish);
    }
  }

  /** Ends all samples; each returns what it has. */
  close(): void {
    for (const finish of this.#running) finish();
  }
}
