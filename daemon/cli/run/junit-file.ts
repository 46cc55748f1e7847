/** The file of `run --junit`: complete from the start of the run, whatever ends it. */
import { randomBytes } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { CommandFailure, fileFailureText } from '#daemon/console/failure';
import { VERSION } from '#daemon/main/version';
import { type JunitRun, junitXml } from './junit.ts';
import { OutputTail } from './output-tail.ts';
import type { RunReport } from './run-report.ts';

export class JunitFile {
  readonly #path: string;
  readonly #words: readonly string[];
  readonly #startedAt = new Date();
  readonly #startedMs = performance.now();
  #outputs: readonly OutputTail[] = [];

  /** Writes the file of a run that has not ended. CommandFailure if that fails. */
  constructor(path: string, words: readonly string[]) {
    this.#path = path;
    this.#words = words;
    this.#write({ error: 'the run was killed before it ended' });
  }

  /** Passes the program's output through, and keeps its end for the file. */
  readonly keepOutput = (stdout: Readable, stderr: Readable): void => {
    this.#outputs = [
      new OutputTail(stdout, process.stdout),
      new OutputTail(stderr, process.stderr),
    ];
  };

  /** Writes the result of a program; without a report, it succeeded. */
  async ended(report: RunReport | undefined): Promise<void> {
    await this.#finishOutput();
    this.#write(report === undefined ? {} : { report });
  }

  /** Writes why there is no result. */
  async failed(error: string): Promise<void> {
    await this.#finishOutput();
    this.#write({ error });
  }

  async #finishOutput(): Promise<void> {
    await Promise.all(this.#outputs.map((each) => each.finish()));
  }

  /** Replaces the file atomically. */
  #write(result: Pick<JunitRun, 'report' | 'error'>): void {
    const [stdout, stderr] = this.#outputs;
    const document = junitXml({
      words: this.#words,
      startedAt: this.#startedAt,
      seconds: (performance.now() - this.#startedMs) / 1000,
      properties: { 'iwarpd.version': VERSION, 'node.version': process.version },
      stdout: stdout?.text ?? '',
      stderr: stderr?.text ?? '',
      ...result,
    });
    const fresh = `${this.#path}.${randomBytes(4).toString('hex')}`;
    try {
      writeFileSync(fresh, document, { flag: 'wx' });
      renameSync(fresh, this.#path);
    } catch (error) {
      rmSync(fresh, { force: true });
      throw new CommandFailure(`cannot write ${this.#path}: ${fileFailureText(error)}`, {
        cause: error,
      });
    }
  }
}
