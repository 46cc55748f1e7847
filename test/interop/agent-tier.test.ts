/**
 * Unmodified programs with a daemon that may not access process memory, as in a container that
 * forbids it: a thread of the preload library moves the bytes.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ADDRESS, ProgramBench } from './program-bench.ts';

let bench: ProgramBench;

beforeAll(async () => {
  bench = new ProgramBench();
  await bench.start(['--memory-tier', 'agent']);
});

afterAll(() => bench.stop());

/** Runs both ends, which must both succeed; returns the client's output. */
async function bothSucceed(words: readonly string[], client: readonly string[], port: number) {
  const ends = await bench.pair(port, words, client);
  expect(ends.client.status, ends.client.output).toBe(0);
  expect(ends.server.status, ends.server.output).toBe(0);
  return ends.client.output;
}

describeWith(['rdma-programs'], 'programs whose memory the daemon may not reach', () => {
  it.each(['64', '65535'])('rping verifies the received data, %s bytes', async (size) => {
    const port = await freePort();
    const words = ['rping', '-a', ADDRESS, '-p', String(port), '-C', '50', '-S', size, '-V'];
    await bothSucceed([...words, '-s'], [...words, '-c'], port);
  });

  it('rstream verifies the received data', async () => {
    const port = await freePort();
    const sizes = ['-S', '40960', '-C', '10', '-I', '10', '-T', 'v', '-T', 'b'];
    const words = ['rstream', '-p', String(port), ...sizes];
    expect(await bothSucceed(words, [...words, '-s', ADDRESS], port)).toMatch(/^custom +40k /m);
  });

  it.each([
    ['ib_write_bw', '16384', '200'],
    ['ib_read_bw', '16384', '200'],
    ['ib_send_bw', '16384', '200'],
    ['ib_send_lat', '16384', '200'],
    // More than the agent moves in one request.
    ['ib_write_bw', '1048576', '20'],
    ['ib_read_bw', '1048576', '20'],
  ])('%s of %s bytes', async (program, size, times) => {
    const port = await freePort();
    const options = ['-R', '-F', '-d', 'iwarp0', '-p', String(port)];
    const words = [program, ...options, '-s', size, '-n', times];
    const output = await bothSucceed(words, [...words, ADDRESS], port);
    expect(output).toMatch(new RegExp(`^ ${size} +${times} `, 'm'));
  });
});
