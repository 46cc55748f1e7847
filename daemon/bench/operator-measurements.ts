/** The cost of observation: counters, pages, captures. Also the start time of a daemon. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { CommandFailure } from '../console/failure.ts';
import { NicCounters } from '../rnic/nic-counters.ts';
import { BenchDaemon } from './bench-daemon.ts';
import type { Measurement } from './measurement.ts';
import type { Rig } from './rig.ts';

/** Requests that a visible page sends every second. */
const PAGE_PATHS = ['/status', '/qps', '/connections', '/faults'];
/** Pages measured together: one alone costs too little to measure in ticks of 10 ms. */
const PAGES = 20;
const PAGE_INTERVAL_MS = 1000;
const PAGE_SECONDS = 8;
/** Requests of all pages before V8 has compiled what answers them. */
const WARM_UP_LOOKS = 40;

const COUNTED_MESSAGES = 20_000_000;

/** Measures Writes without observation; returns MB/s. */
type Writes = (rig: Rig, scale: number) => Promise<number>;

/** The measurements. `writes`, of 64 KiB each, is the baseline of a capture. */
export function operatorMeasurements(writes: Writes): readonly Measurement[] {
  return [
    {
      name: 'ready',
      title: 'from the start of a daemon with HTTP to its ready line',
      unit: 'ms',
      better: 'lower',
      target: { kind: 'value', limit: 500 },
      baselines: [],
      run: readiness,
    },
    {
      name: 'counters',
      title: 'counting a Write of 64 KiB in two FPDUs, and its completion',
      unit: 'ns',
      better: 'lower',
      // 2 % of the daemon's time for such a Write at 2,500 MB/s.
      target: { kind: 'value', limit: 500 },
      baselines: [],
      run: async () => counting(),
    },
    {
      name: 'idle-page',
      title: `one visible page: share of the daemon's core, from ${PAGES} pages`,
      unit: '%',
      better: 'lower',
      target: { kind: 'value', limit: 2 },
      baselines: [],
      run: pageShare,
      once: true,
    },
    {
      name: 'capture-64k',
      title: 'RDMA Write of 64 KiB while `iwarpd capture` writes all of it to a file',
      unit: 'MB/s',
      better: 'higher',
      target: { kind: 'ratio', limit: 0.7 },
      baselines: [{ title: 'without a capture', run: writes }],
      run: (rig, scale) => captured(rig, () => writes(rig, scale)),
      warmUps: 1,
    },
  ];
}

async function readiness(): Promise<number> {
  const began = performance.now();
  const daemon = await BenchDaemon.start({ address: '127.0.0.4', http: true });
  const elapsed = performance.now() - began;
  await daemon.stop();
  return elapsed;
}

/** Nanoseconds for a device to count one message, at the sender. */
function counting(): number {
  const counters = new NicCounters();
  const began = process.hrtime.bigint();
  for (let message = 0; message < COUNTED_MESSAGES; message++) {
    counters.sendsTaken += 1;
    counters.outWrites += 1;
    counters.gatheredBytes += 32_768;
    counters.gatheredBytes += 32_768;
    counters.completions += 1;
  }
  const elapsed = Number(process.hrtime.bigint() - began);
  if (counters.completions !== COUNTED_MESSAGES) throw new Error('the counters missed completions');
  return elapsed / COUNTED_MESSAGES;
}

/** Percent of a core that one page costs a daemon without clients. */
async function pageShare(): Promise<number> {
  const daemon = await BenchDaemon.start({ address: '127.0.0.4', http: true });
  try {
    const place = await daemon.http();
    await lookFor(place, WARM_UP_LOOKS, 0);
    await sleep(PAGE_INTERVAL_MS);
    const before = daemon.cpuSeconds();
    await sleep(PAGE_SECONDS * PAGE_INTERVAL_MS);
    const idle = daemon.cpuSeconds() - before;
    const begun = daemon.cpuSeconds();
    await lookFor(place, PAGE_SECONDS, PAGE_INTERVAL_MS);
    const busy = daemon.cpuSeconds() - begun;
    return ((busy - idle) / PAGES / PAGE_SECONDS) * 100;
  } finally {
    await daemon.stop();
  }
}

type HttpPlace = Awaited<ReturnType<BenchDaemon['http']>>;

/** Sends the requests of all pages at once, `times` times. */
async function lookFor(place: HttpPlace, times: number, intervalMs: number): Promise<void> {
  for (let time = 0; time < times; time++) {
    const next = sleep(intervalMs);
    await Promise.all(Array.from({ length: PAGES }, () => lookOnce(place)));
    await next;
  }
}

async function lookOnce({ url, headers }: HttpPlace): Promise<void> {
  for (const path of PAGE_PATHS) {
    const reply = await fetch(`${url}${path}`, { headers });
    if (!reply.ok) throw new Error(`${path} answers ${reply.status}`);
    await reply.arrayBuffer();
  }
}

async function captured(rig: Rig, run: () => Promise<number>): Promise<number> {
  const [{ socketPath }] = await rig.daemons();
  // Connect before the capture begins, as in most real captures.
  await rig.overDaemons();
  const folder = mkdtempSync(join(tmpdir(), 'iwarpd-bench-'));
  try {
    const capture = await CaptureProcess.start(socketPath, join(folder, 'all.pcapng'));
    try {
      return await run();
    } finally {
      await capture.stop();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const START_TIMEOUT_MS = 15_000;
const STOP_TIMEOUT_MS = 30_000;

/** `iwarpd capture` as a process alongside the measured ones. */
class CaptureProcess {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** Starts it, and waits until it is capturing. */
  static async start(socketPath: string, file: string): Promise<CaptureProcess> {
    const main = fileURLToPath(new URL('../cli/main.js', import.meta.url));
    const child = spawn(process.execPath, [main, 'capture', '--socket', socketPath, '-w', file], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const capture = new CaptureProcess(child);
    let said = '';
    try {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(failure('did not start')), START_TIMEOUT_MS);
        const failure = (what: string) => new CommandFailure(`the capture ${what}: ${said}`);
        child.stderr?.on('data', (bytes: Buffer) => {
          said = (said + bytes.toString()).slice(-4096);
          if (!said.includes('capturing to')) return;
          clearTimeout(timer);
          resolve();
        });
        child.once('exit', (code) => {
          clearTimeout(timer);
          reject(failure(`ended with status ${code}`));
        });
      });
    } catch (error) {
      await capture.stop();
      throw error;
    }
    return capture;
  }

  /** Stops it, and waits until everything is written. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    child.kill('SIGINT');
    await ended;
    clearTimeout(timer);
  }
}
