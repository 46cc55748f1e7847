/**
 * Unmodified arm64 programs, which qemu emulates with an arm64 build of the shim, on this machine's
 * daemon. Shared data, above all the rings, must have the same layout for both.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { ARM64, missingFor, ShimRig } from '../support/shim-rig.ts';
import { prepareArm64Root } from './arm64-root.ts';
import { ADDRESS, ProgramBench } from './program-bench.ts';

const reason = missingFor(ARM64);

describe.runIf(reason === '')(`arm64 programs under emulation${reason}`, () => {
  let bench: ProgramBench;
  let rig: ShimRig;
  let root: string;
  let port: string;
  /** Why the programs are unavailable. */
  let obstacle: string | undefined;

  beforeAll(async () => {
    bench = new ProgramBench();
    rig = new ShimRig(ARM64);
    await bench.start();
    try {
      root = await prepareArm64Root();
    } catch (error) {
      obstacle = `no arm64 packages: ${error instanceof Error ? error.message : error}`;
      process.stderr.write(`skipped: arm64 programs (${obstacle})\n`);
    }
  });

  beforeEach(async (context) => {
    context.skip(obstacle !== undefined, obstacle);
    port = String(await freePort());
  });

  afterAll(async () => {
    await bench.stop();
    rig.remove();
  });

  /** A program as `iwarpd run` can start it: only the emulator is a program of this machine. */
  function emulated([name = '', ...rest]: readonly string[]): string[] {
    const libraries = ['usr/lib', 'lib'].map((place) => join(root, place, 'aarch64-linux-gnu'));
    const variables = [`LD_PRELOAD=${rig.shim}`, `LD_LIBRARY_PATH=${libraries.join(':')}`];
    const emulator = ['env', '-u', 'LD_PRELOAD', 'qemu-aarch64', '-L', root];
    const settings = variables.flatMap((variable) => ['-E', variable]);
    return [...emulator, ...settings, join(root, 'usr/bin', name), ...rest];
  }

  /** Runs both ends, which must both succeed; returns the client's output. */
  async function bothSucceed(
    server: readonly string[],
    client: readonly string[],
  ): Promise<string> {
    const ends = await bench.pair(Number(port), emulated(server), emulated(client));
    expect(ends.client.status, ends.client.output).toBe(0);
    expect(ends.server.status, ends.server.output).toBe(0);
    return ends.client.output;
  }

  it('ibv_devinfo sees the device', async () => {
    const { status, output } = await bench.run(emulated(['ibv_devinfo']));
    expect(status, output).toBe(0);
    expect(output).toMatch(/hca_id:\s+iwarp0/);
    expect(output).toMatch(/state:\s+PORT_ACTIVE \(4\)/);
  });

  it('rping verifies the received data', async () => {
    const words = ['rping', '-a', ADDRESS, '-p', port, '-C', '20', '-S', '30000', '-V'];
    await bothSucceed([...words, '-s'], [...words, '-c']);
  });

  it('rstream verifies the received data', async () => {
    const words = ['rstream', '-p', port, '-S', '40000', '-C', '10', '-I', '5', '-T', 'v'];
    expect(await bothSucceed(words, [...words, '-s', ADDRESS])).toMatch(/^custom +39k /m);
  });

  it.each([
    ['ib_write_bw', '65536'],
    ['ib_read_bw', '65536'],
    ['ib_send_lat', '64'],
  ])('%s of %s bytes', async (program, size) => {
    const words = [program, '-R', '-F', '-p', port, '-s', size, '-n', '100'];
    const output = await bothSucceed(words, [...words, ADDRESS]);
    expect(output).toMatch(new RegExp(`^ ${size} +100 `, 'm'));
  });

  it('rping between an arm64 program and one of this machine', async () => {
    const words = ['rping', '-a', ADDRESS, '-p', port, '-C', '20', '-S', '1000', '-V'];
    const ends = await bench.pair(Number(port), [...words, '-s'], emulated([...words, '-c']));
    expect(ends.client.status, ends.client.output).toBe(0);
    expect(ends.server.status, ends.server.output).toBe(0);
  });
});
