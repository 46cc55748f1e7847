/**
 * perftest's bandwidth and latency programs, unmodified, both ends on one daemon.
 *
 * perftest itself has limits. The sender of a Send transfer waits for credit that arrives by a
 * Write, which raises no event: with -e it sleeps forever once the receiver lags behind by
 * `rx-depth` messages, so messages are large enough for the stream to slow the sender down. Several
 * connections on one shared receive queue get more credit than the queue has entries. Over iWARP
 * that ends a stream, since there is no "receiver not ready" to retry, so --use-srq runs with one
 * connection.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { measuredNothing, untilFast } from './perftest-patience.ts';
import { ADDRESS, type EndedProgram, endOf, ProgramBench } from './program-bench.ts';

const BANDWIDTH = ['ib_write_bw', 'ib_read_bw', 'ib_send_bw'] as const;
const LATENCY = ['ib_write_lat', 'ib_read_lat', 'ib_send_lat'] as const;
/** `-a`: every power of two from 2 bytes to 8 MiB. */
const ALL_SIZES = Array.from({ length: 23 }, (_, power) => 2 ** (power + 1));

let bench: ProgramBench;

beforeAll(async () => {
  bench = new ProgramBench();
  await bench.start();
});

afterAll(() => bench.stop());

/** A line of the result table: bytes of a message, messages, and the measured numbers. */
interface Row {
  readonly size: number;
  readonly iterations: number;
  readonly measured: readonly number[];
}

function rowsOf({ output }: EndedProgram): Row[] {
  const lines = output.split('\n').map((line) => line.trim().split(/\s+/));
  const numeric = lines.filter(
    (words) => words.length >= 5 && words.every((word) => /^[\d.]+$/.test(word)),
  );
  return numeric.map((words) => {
    const [size = Number.NaN, iterations = Number.NaN, ...measured] = words.map(Number);
    return { size, iterations, measured };
  });
}

/** Runs `words` at both ends, over rdma_cm; the client's rows once both ends have succeeded. */
async function transfer(...words: readonly string[]): Promise<Row[]> {
  let rows: Row[] = [];
  await untilFast(async () => {
    const port = await freePort();
    const both = [...words, '-F', '-R', '-p', String(port)];
    const { server, client } = await bench.pair(port, both, [...both, ADDRESS]);
    expect(client.status, client.output).toBe(0);
    expect(server.status, server.output).toBe(0);
    rows = rowsOf(client);
    return measuredNothing(client) ? client.output : undefined;
  });
  return rows;
}

/** Expects one row for `size` and `iterations` whose average is a number above zero. */
function expectRow(rows: readonly Row[], size: number, iterations: number): void {
  expect(rows.map((row) => [row.size, row.iterations])).toEqual([[size, iterations]]);
  expect(rows[0]?.measured[1]).toBeGreaterThan(0);
}

describeWith(['perftest'], 'perftest over iwarpd', () => {
  it.each(BANDWIDTH)('%s -a: every size up to 8 MiB', async (program) => {
    const rows = await transfer(program, '-a', '-n', '10');
    expect(rows.map(({ size }) => size)).toEqual(ALL_SIZES);
    for (const { iterations, measured } of rows) {
      expect(iterations).toBe(10);
      // Messages per microsecond; a few bytes of slow messages are 0.00 MB/s.
      expect(measured[2]).toBeGreaterThan(0);
    }
  });

  it.each(BANDWIDTH)('%s -q 8: eight queue pairs', async (program) => {
    expectRow(await transfer(program, '-q', '8', '-s', '65536', '-n', '100'), 65536, 800);
  });

  it.each(BANDWIDTH)('%s -b: both directions at once', async (program) => {
    expectRow(await transfer(program, '-b', '-s', '65536', '-n', '200'), 65536, 200);
  });

  it.each(LATENCY)('%s: a small message and a large one', async (program) => {
    expectRow(await transfer(program, '-s', '64', '-n', '500'), 64, 500);
    expectRow(await transfer(program, '-s', '262144', '-n', '20'), 262144, 20);
  });

  describe('-e: asleep until a completion comes', () => {
    it('ib_send_bw, one way and both ways', async () => {
      expectRow(await transfer('ib_send_bw', '-e', '-s', '65536', '-n', '1000'), 65536, 1000);
      expectRow(
        await transfer('ib_send_bw', '-e', '-b', '-s', '65536', '-n', '1000', '-r', '1000'),
        65536,
        1000,
      );
    });

    it('ib_read_bw', async () => {
      expectRow(await transfer('ib_read_bw', '-e', '-s', '4096', '-n', '300'), 4096, 300);
    });

    it.each(['ib_send_lat', 'ib_read_lat'])('%s', async (program) => {
      expectRow(await transfer(program, '-e', '-s', '64', '-n', '200'), 64, 200);
    });
  });

  it.each(['ib_send_bw', 'ib_send_lat'])('%s --use-srq', async (program) => {
    expectRow(await transfer(program, '--use-srq', '-s', '4096', '-n', '200'), 4096, 200);
  });

  it('fails without -R on the iWARP device: it connects queue pairs out of band', async () => {
    const port = await freePort();
    const words = ['ib_write_bw', '-d', 'iwarp0', '-p', String(port), '-n', '10'];
    const server = await bench.server(port, words);
    const client = await bench.run([...words, ADDRESS], 10);
    const { status } = await endOf(server);
    expect([1, 17], client.output).toContain(client.status);
    expect(client.output).toMatch(/Failed to modify QP|Unable to Connect/);
    expect(status).not.toBe(0);
    expect(status).not.toBe(124);
  });
});
