/** Passes a program's output through, and keeps its end. */
import type { Readable, Writable } from 'node:stream';

/** Enough to see why a test failed; a CI system refuses much larger files. */
const KEPT_BYTES = 64 * 1024;
/** Time for output after the program's end: a process that it left behind may hold the pipe open. */
const LATE_MS = 1_000;

export class OutputTail {
  readonly #ended: Promise<void>;
  readonly #source: Readable;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #cut = false;

  constructor(source: Readable, target: Writable) {
    this.#source = source;
    this.#ended = new Promise((resolve) => {
      source.once('close', resolve);
    });
    source.on('data', (chunk: Buffer) => this.#keep(chunk));
    source.pipe(target, { end: false });
  }

  /** Waits, for a limited time, for the rest. */
  async finish(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, LATE_MS);
    });
    await Promise.race([this.#ended, late]);
    clearTimeout(timer);
    this.#source.destroy();
  }

  /** The kept text, preceded by a line that says so if there was more. */
  get text(): string {
    const kept = Buffer.concat(this.#chunks).subarray(-KEPT_BYTES).toString('utf8');
    return this.#cut ? `[the last ${KEPT_BYTES / 1024} KiB]\n${kept}` : kept;
  }

  #keep(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    for (;;) {
      const first = this.#chunks[0]?.length ?? 0;
      if (this.#bytes - first < KEPT_BYTES) break;
      this.#bytes -= first;
      this.#chunks.shift();
      this.#cut = true;
    }
    this.#cut ||= this.#bytes > KEPT_BYTES;
  }
}
