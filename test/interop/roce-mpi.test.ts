/**
 * Open MPI and MPICH, unmodified, with UCX over a RoCE device: a program that checks the data of
 * every kind of transfer, and NetPIPE's check. MPICH keeps windows of one host in shared memory; all
 * else goes through the device.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const SOURCE = join(repositoryRoot(), 'test/interop/programs/mpi-check.c');

let rig: RoceRig;
let folder: string;

beforeAll(async () => {
  folder = temporaryFolder();
  rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.6'], transport: 'roce' });
});

afterEach(() => rig.host.faults.clear());
afterAll(() => rig.stop());

/** Loses one packet in a thousand until the end of the test. */
function losePackets(): void {
  rig.host.faults.add({ kind: 'drop', probability: 0.001, seed: 1 }, undefined);
}

async function run(...words: readonly string[]): Promise<string> {
  const environment = {
    ...rig.environment,
    // Nothing but the device: no shared memory, no TCP.
    UCX_TLS: 'rc_verbs,ud_verbs,self',
    UCX_NET_DEVICES: 'roce0:1',
    UCX_WARN_UNUSED_ENV_VARS: 'n',
    OMPI_ALLOW_RUN_AS_ROOT: '1',
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1',
  };
  const before = placed();
  const { status, output } = await new ShimProgram(words, environment).end();
  expect(status, output).toBe(0);
  expect(placed() - before, 'the device moved the data').toBeGreaterThan(1_000_000);
  return output;
}

function placed(): number {
  return rig.host.devices[0]?.nic.counters.placedBytes ?? 0;
}

function build(compiler: string): string {
  const program = join(folder, 'check');
  const { status, stderr } = spawnSync(compiler, ['-O1', SOURCE, '-o', program], {
    encoding: 'utf8',
  });
  expect(status, stderr).toBe(0);
  return program;
}

const OPEN_MPI = 'mpirun.openmpi --oversubscribe --mca pml ucx --mca osc ucx'.split(' ');
const NETPIPE = ['-i', '-n', '3', '-u', '1000000', '-o', '/dev/null'];

describeWith(['openmpi'], 'Open MPI over RoCE', () => {
  it.each(['', ', though packets are lost'])(
    'sends, reduces, exchanges and puts among four processes%s',
    async (loss) => {
      if (loss !== '') losePackets();
      const output = await run(...OPEN_MPI, '-np', '4', build('mpicc.openmpi'));
      expect(output).toContain('4 ranks, all data right\n');
    },
  );

  it('passes the integrity check of NetPIPE', async () => {
    const output = await run(...OPEN_MPI, '-np', '2', 'NPopenmpi', ...NETPIPE);
    expect(output).toMatch(/ 786433 bytes +3 times --> +Integrity check passed/);
  });
});

describeWith(['mpich'], 'MPICH over RoCE', () => {
  it.each(['', ', though packets are lost'])(
    'sends, reduces, exchanges and puts among four processes%s',
    async (loss) => {
      if (loss !== '') losePackets();
      const output = await run('mpirun.mpich', '-np', '4', build('mpicc.mpich'));
      expect(output).toContain('4 ranks, all data right\n');
    },
  );

  it('passes the integrity check of NetPIPE', async () => {
    const output = await run('mpirun.mpich', '-np', '2', 'NPmpich2', ...NETPIPE);
    expect(output).toMatch(/ 786433 bytes +3 times --> +Integrity check passed/);
  });
});
