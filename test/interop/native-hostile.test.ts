/**
 * The native bridge in a bad environment and with bad calls. Each case is a separate process
 * (`programs/hostile.ts`), which must exit with status 0, never by a signal, after an
 * error whose type and code name the cause. On siw itself: `native-siw.test.ts`.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CommandFolder } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type Environment, ShimProgram, shimEnvironment } from '../support/shim-programs.ts';
import {
  closed,
  type HostileSteps,
  hostileCommand,
  hostileSteps,
  kept,
  lost,
  stepNamed,
  untouched,
} from './hostile-steps.ts';

const ADDRESS = '127.0.0.1';
/** A library with one call of libibverbs, like a very old release. */
const OLD_LIBRARY = 'void *ibv_get_device_list(int *count) { return 0; }';

const folder = new CommandFolder();

/** Runs a case, which must exit cleanly. */
async function run(words: readonly string[], environment: Environment = {}): Promise<HostileSteps> {
  const ended = await new ShimProgram(hostileCommand(words), environment).end();
  expect(ended, ended.output).toMatchObject({ status: 0, signal: undefined, late: false });
  return hostileSteps(ended.output);
}

describeWith(['native'], 'misuse of the native bridge', () => {
  afterAll(() => folder.clean());

  describe('libraries', () => {
    /** A folder where the loader looks first. */
    function searched(name: string): { path: string; environment: Environment } {
      const path = folder.file(name);
      mkdirSync(path);
      return { path, environment: { LD_LIBRARY_PATH: path } };
    }

    it.each([
      ['missing-verbs', 'libibverbs-absent.so.1'],
      ['missing-cm', 'librdmacm-absent.so.1'],
    ])('%s names the library', async (name, library) => {
      const steps = await run([name, ADDRESS, library]);
      const { error } = stepNamed(steps, 'create');
      expect(error).toMatchObject({ code: 'ENODEV', kind: 'libraryMissing' });
      expect(error?.message).toContain(library);
      expect(error?.message).toContain('No such file');
    });

    it.each(['libibverbs.so.1', 'librdmacm.so.1'])('%s that is not a library', async (library) => {
      const { path, environment } = searched(`broken-${library}`);
      writeFileSync(
        join(path, library),
        'this is no library, but long enough for a header\n'.repeat(9),
      );
      const { error } = stepNamed(await run(['libraries'], environment), 'create');
      expect(error).toMatchObject({ code: 'ENODEV', kind: 'libraryMissing' });
      expect(error?.message).toContain(library);
    });

    it.each(['libibverbs.so.1', 'librdmacm.so.1'])('%s that is too old', async (library) => {
      const { path, environment } = searched(`old-${library}`);
      writeFileSync(join(path, 'old.c'), OLD_LIBRARY);
      const words = ['-shared', '-fPIC', `-Wl,-soname,${library}`, '-o', join(path, library)];
      const compiled = spawnSync('gcc', [...words, join(path, 'old.c')], { encoding: 'utf8' });
      expect(compiled.status, compiled.stderr).toBe(0);
      const { error } = stepNamed(await run(['libraries'], environment), 'create');
      // librdmacm itself may fail to load: it needs functions that the old libibverbs lacks.
      const kind = expect.stringMatching(/^library(TooOld|Missing)$/);
      expect(error).toMatchObject({ kind, code: expect.stringMatching(/^(ENOSYS|ENODEV)$/) });
      expect(error?.message).toMatch(/ has no (ibv|rdma)_\w+: too old|undefined symbol|version/);
      expect(error?.message).toContain(library);
    });
  });

  it('no device: an empty list, and ENODEV for opening one', async () => {
    // A search path without devices hides those that the machine may have.
    const empty = folder.file('no-devices');
    mkdirSync(join(empty, 'class/infiniband_verbs'), { recursive: true });
    const steps = await run(['no-device'], { SYSFS_PATH: empty });
    expect(stepNamed(steps, 'devices').value).toBe(0);
    for (const name of ['open', 'open siw0', 'createId']) {
      const { error } = stepNamed(steps, name);
      expect(error, name).toMatchObject({ code: 'ENODEV', kind: 'noDevice' });
    }
    expect(stepNamed(steps, 'open siw0').error?.message).toContain('siw0');
    expect(stepNamed(steps, 'close').value).toBe('done');
  });

  describe('on an emulated device, by the shim', () => {
    let socket: string;
    let environment: Environment;

    beforeAll(async () => {
      socket = folder.file('d/s');
      await folder.daemon(socket);
      environment = await shimEnvironment(socket);
    });

    it('everything closed twice', async () => {
      closed(await run(['twice', ADDRESS], environment));
    });

    it('calls on destroyed objects', async () => {
      untouched(await run(['afterwards', ADDRESS], environment));
    });

    it('registered memory that is taken away', async () => {
      kept(await run(['freed', ADDRESS], environment));
    });

    it('a device whose daemon is killed', async () => {
      const socketOfVictim = folder.file('victim/s');
      const daemon = await folder.daemon(socketOfVictim);
      const victim = await shimEnvironment(socketOfVictim);
      const program = new ShimProgram(hostileCommand(['disappears', ADDRESS]), victim);
      await program.until(/"step":"ready"/);
      await daemon.kill();
      const ended = await program.end();
      expect(ended, ended.output).toMatchObject({ status: 0, signal: undefined, late: false });
      lost(hostileSteps(ended.output));
    });
  });
});
