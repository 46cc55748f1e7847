/** `iwarpd doctor PROGRAM` on real programs; the judge of the libraries that it finds is ldd. */
import { spawnSync } from 'node:child_process';
import { readFileSync, realpathSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { linkedLibraries } from '#daemon/cli/doctor/linked-libraries';
import { Draws } from '#test/support/draws';
import { mutated } from '#test/support/mutate';
import { runCommand } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const folder = temporaryFolder();

interface Report {
  readonly healthy: boolean;
  readonly states: Readonly<Record<string, string>>;
  readonly texts: Readonly<Record<string, string>>;
}

async function doctor(...words: readonly string[]): Promise<Report & { readonly status: number }> {
  const { status, stdout, stderr } = await runCommand(['doctor', '--json', ...words]);
  expect(stdout, stderr).not.toBe('');
  const { healthy, checks } = JSON.parse(stdout) as {
    healthy: boolean;
    checks: { name: string; state: string; text: string }[];
  };
  return {
    status: status ?? -1,
    healthy,
    states: Object.fromEntries(checks.map(({ name, state }) => [name, state])),
    texts: Object.fromEntries(checks.map(({ name, text }) => [name, text])),
  };
}

/** Compiles C to `name` in the folder. */
function compile(name: string, source: string, ...options: readonly string[]): string {
  const path = join(folder, name);
  const words = ['-x', 'c', '-', '-o', path, ...options];
  const { status, stderr } = spawnSync('gcc', words, { input: source, encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return path;
}

const MAIN = 'int main(void) { return 0; }';

describeWith(['perftest', 'rdma-programs'], 'doctor of a program', () => {
  it.each(['rping', 'ib_send_bw', 'ibv_devinfo', 'bash', 'git', process.execPath])(
    'finds the libraries of %s where ldd does',
    (name) => {
      const path = name.startsWith('/') ? name : `/usr/bin/${name}`;
      const { stdout } = spawnSync('ldd', [path], { encoding: 'utf8' });
      const expected = new Map<string, string>();
      for (const [, library = '', at] of stdout.matchAll(/^\t(\S+)(?: => (\/\S+))? \(0x/gm)) {
        if (library.startsWith('linux-vdso')) continue;
        expected.set(library.replace(/.*\//, ''), realpathSync(at ?? library));
      }
      const found = linkedLibraries(path, '')
        .slice(1)
        .map(({ name: library, path: at }) => [library, realpathSync(at ?? '/')] as const);
      expect(new Map(found)).toEqual(expected);
      expect(expected.size).toBeGreaterThan(0);
    },
  );

  it('names the ways to RDMA of one that `run` serves', async () => {
    const { healthy, states, texts } = await doctor('rping');
    expect(healthy).toBe(true);
    expect(states).toEqual({ program: 'ok', preload: 'ok', libraries: 'ok', rdma: 'ok' });
    expect(texts['rdma']).toContain('librdmacm.so.1 (linked), libibverbs.so.1 (linked)');
  });

  it('says of a library of RDMA that it is one', async () => {
    const library = linkedLibraries('/usr/bin/rping', '').find(({ name }) => /verbs/.test(name));
    const { texts } = await doctor(library?.path ?? '');
    expect(texts['rdma']).toMatch(/^libibverbs\.so\.1 \(itself\):/);
  });

  it("names the calls of one vendor's adapters, and management datagrams", async () => {
    const { healthy, texts } = await doctor('ib_send_bw');
    expect(healthy).toBe(true);
    expect(texts['adapters']).toContain('calls mlx5dv and efadv');
    expect(texts['management']).toContain('libibumad.so.3');
  });

  it('fails for a static program, and says so for one of Go', async () => {
    const note = `__attribute__((section(".note.go.buildid"), used))
      static const struct { int name, text, type; char owner[4], id[4]; } note = {4, 4, 4, "Go", "id"};`;
    const path = compile('static', `${note}\n${MAIN}`, '-static');
    const { status, states, texts } = await doctor(path);
    expect(status).toBe(1);
    expect(states['preload']).toBe('broken');
    expect(texts['preload']).toContain('statically linked');
    expect(texts['system calls']).toContain('a Go program');
  });

  it('fails for a program that is cut off', async () => {
    const path = compile('whole', MAIN);
    truncateSync(path, 3000);
    const { status, texts } = await doctor(path);
    expect(status).toBe(1);
    expect(texts['preload']).toContain('is damaged: the file ends before its segments do');
  });

  it('finds libraries by the folder of the program, and those that are loaded on demand', async () => {
    const lazy = compile(
      'libplugin.so',
      '#include <dlfcn.h>\nvoid *load(void) { return dlopen("libibverbs.so.1", RTLD_NOW); }',
      ...['-shared', '-fPIC', '-Wl,-soname,libplugin.so'],
    );
    const uses = 'void *load(void); int main(void) { return load() == 0; }';
    const path = compile('uses', uses, '-x', 'none', lazy, '-Wl,-rpath,$ORIGIN');
    const { healthy, texts } = await doctor(path);
    expect(healthy).toBe(true);
    expect(texts['rdma']).toContain('libibverbs.so.1 (loaded on demand by libplugin.so)');

    const library = await doctor(lazy);
    expect(library.states['program']).toBe('ok');
    expect(library.texts['rdma']).toContain('libibverbs.so.1 (loaded on demand by libplugin.so)');

    rmSync(lazy);
    const without = await doctor(path);
    expect(without.status).toBe(1);
    expect(without.texts['libraries']).toBe('not found: libplugin.so');
  });

  it('names the program that runs a script', async () => {
    const path = join(folder, 'script');
    writeFileSync(path, '#!/usr/bin/env bash\n', { mode: 0o755 });
    const { healthy, texts } = await doctor(path);
    expect(healthy).toBe(true);
    expect(texts['program']).toMatch(/a script that \S*\/bash runs/);
  });

  it('fails in one line for a program that does not exist', async () => {
    const { status, stderr } = await runCommand(['doctor', 'no-such-program']);
    expect(status).toBe(1);
    expect(stderr).toBe('iwarpd: no such program: no-such-program\n');
  });

  it('survives damaged programs', () => {
    const damaged = join(folder, 'damaged');
    const whole = readFileSync('/usr/bin/ibv_devinfo');
    const draws = new Draws();
    for (let input = 0; input < 500; input += 1) {
      draws.seed(1, input);
      // The headers are at its start, the dynamic section is anywhere.
      const at = draws.oneIn(2) ? 1024 : whole.length;
      const head = mutated(whole.subarray(0, at), [whole], draws, 1 + draws.below(6));
      writeFileSync(damaged, Buffer.concat([head, whole.subarray(at)]));
      expect(linkedLibraries(damaged, '').length).toBeLessThan(100);
    }
  });
});
