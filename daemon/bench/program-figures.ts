/** Parses the output of perftest, UCX, libfabric and iperf3. */

/** Characters of a failed program's output to show. */
const COMPLAINT_LENGTH = 600;
/** Fields of a line of ucx_perftest. */
const UCX_FIELDS = 8;
/** Fields of a line of fi_pingpong, and its notation for a message of `sizeBytes`. */
const PINGPONG_FIELDS = 8;

/** The end of a program's output. */
export function tail(output: string): string {
  return output.trim().slice(-COMPLAINT_LENGTH) || 'no output';
}

/**
 * The figures after `sizeBytes` in perftest's table: the number of iterations, then results. Throws if
 * there is no such line.
 */
export function perftestFigures(output: string, sizeBytes: number): readonly number[] {
  const rows = output.split('\n').map((line) => line.trim().split(/\s+/).map(Number));
  const row = rows.find(([first]) => first === sizeBytes);
  if (row === undefined) throw new Error(`no figures for ${sizeBytes} bytes: ${tail(output)}`);
  return row.slice(1);
}

/** The last line of figures of `ucx_perftest -f`. Throws if there is none. */
export function ucxFigures(output: string): UcxFigures {
  const rows = output.split('\n').map((line) =>
    line
      .replace(/^\s*Final:/, '')
      .trim()
      .split(/\s+/)
      .map(Number),
  );
  const row = rows.findLast((each) => each.length === UCX_FIELDS && each.every(Number.isFinite));
  if (row === undefined) throw new Error(`ucx_perftest gave no figures: ${tail(output)}`);
  const [, medianMicros = Number.NaN, , , , rateMBps = Number.NaN] = row;
  return { medianMicros, rateMBps: rateMBps * MIB_IN_MB };
}

interface UcxFigures {
  /** One way. */
  readonly medianMicros: number;
  /** Over the whole run, in decimal MB/s. */
  readonly rateMBps: number;
}

/** ucx_perftest counts in MiB, but calls them MB. */
const MIB_IN_MB = (1 << 20) / 1e6;

interface PingPongFigures {
  /** One way, on average. */
  readonly averageMicros: number;
  /** With one message at a time, in decimal MB/s. */
  readonly rateMBps: number;
}

/** The line of figures of `fi_pingpong`. Throws if there is none. */
export function pingPongFigures(output: string): PingPongFigures {
  const rows = output.split('\n').map((line) => line.trim().split(/\s+/));
  const row = rows.findLast((each) => each.length === PINGPONG_FIELDS && /^\d/.test(each[0] ?? ''));
  const [rateMBps, averageMicros] = [Number(row?.[5]), Number(row?.[6])];
  if (!Number.isFinite(rateMBps) || !Number.isFinite(averageMicros)) {
    throw new Error(`fi_pingpong gave no figures: ${tail(output)}`);
  }
  return { averageMicros, rateMBps };
}

/** Decimal MB/s at the receiver of `iperf3 -J`. Throws if there is no such figure. */
export function iperfRate(output: string): number {
  let report: unknown;
  try {
    report = JSON.parse(output);
  } catch {
    throw new Error(`iperf3 gave no JSON: ${tail(output)}`);
  }
  const rate = field(field(field(report, 'end'), 'sum_received'), 'bits_per_second');
  if (typeof rate !== 'number') throw new Error(`iperf3 gave no rate: ${tail(output)}`);
  return rate / 8e6;
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
