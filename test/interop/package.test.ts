/**
 * The package that `npm pack` creates from this checkout, as a user gets it: packed in a copy that
 * was never set up, installed by another user without a compiler, and used.
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';

/** A user and group that exist nowhere. */
const STRANGER = 23_456;
/** Everything a stranger has: no compiler, no make, no Python. */
const TOOLS =
  'node bash sh env cat ls mkdir mv rm dirname readlink sed grep uname ibv_devices rping sleep timeout';
const SETPRIV = '/usr/bin/setpriv';
/** ELF machine numbers of the preload libraries in a package. */
const ELF_MACHINES = { x64: 62, arm64: 183 } as const;
/**
 * Offsets of the machine in an ELF header and of the type in a section header; a symbol table's
 * type.
 */
const ELF_MACHINE_OFFSET = 18;
const SECTION_TYPE_OFFSET = 4;
const SECTION_SYMTAB = 2;

const root = mkdtempSync(join(tmpdir(), 'iwarpd-package-'));
const project = join(root, 'project');
const installed = join(project, 'node_modules/iwarpd');

/** Output and status of a command. */
interface Finished {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(
  words: readonly string[],
  cwd: string,
  environment: NodeJS.ProcessEnv,
): Promise<Finished> {
  const [command = '', ...rest] = words;
  return new Promise((done) => {
    const child = spawn(command, rest, {
      cwd,
      env: environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      stdout += part;
    });
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      stderr += part;
    });
    child.on('close', (status) => done({ status, stdout, stderr }));
  });
}

/** Runs a command as the stranger, in the project. */
function asStranger(...words: string[]): Promise<Finished> {
  const identity = ['--reuid', `${STRANGER}`, '--regid', `${STRANGER}`, '--clear-groups'];
  const environment = { PATH: join(root, 'bin'), HOME: join(root, 'home') };
  return run([SETPRIV, ...identity, ...words], project, environment);
}

/** Copies the files that git tracks or would track, as in a clone of the next commit. */
function copyOfCheckout(target: string): void {
  const listed = spawnSync('git', ['ls-files', '-z', '-co', '--exclude-standard'], {
    cwd: repositoryRoot(),
    encoding: 'utf8',
  });
  for (const name of listed.stdout.split('\0')) {
    const from = join(repositoryRoot(), name);
    if (name !== '' && existsSync(from)) cpSync(from, join(target, name), { recursive: true });
  }
}

function giveTools(folder: string): void {
  mkdirSync(folder);
  for (const tool of TOOLS.split(' ')) {
    const { stdout } = spawnSync('sh', ['-c', `command -v ${tool}`], { encoding: 'utf8' });
    if (stdout !== '') symlinkSync(stdout.trim(), join(folder, tool));
  }
  // npm is a script that looks for its parts beside itself.
  for (const tool of ['npm', 'npx']) {
    const { stdout } = spawnSync('sh', ['-c', `readlink -f "$(command -v ${tool})"`], {
      encoding: 'utf8',
    });
    symlinkSync(stdout.trim(), join(folder, tool));
  }
}

/** Types of an ELF file's sections. */
function sectionTypes(elf: DataView): number[] {
  const table = Number(elf.getBigUint64(0x28, true));
  const size = elf.getUint16(0x3a, true);
  const count = elf.getUint16(0x3c, true);
  return Array.from({ length: count }, (_, index) =>
    elf.getUint32(table + index * size + SECTION_TYPE_OFFSET, true),
  );
}

/** Files of the installed package, relative to it, whose names match. */
function filesOf(pattern: RegExp): string[] {
  const entries = readdirSync(installed, { recursive: true, encoding: 'utf8' });
  return entries.filter((name) => pattern.test(name) && !name.startsWith('node_modules'));
}

describeWith(['package'], 'a package made by `npm pack`, installed by another user', () => {
  let pack: Finished;
  let compiled: readonly string[];
  let install: Finished;

  beforeAll(async () => {
    const clone = join(root, 'clone');
    mkdirSync(clone);
    copyOfCheckout(clone);
    pack = await run(['npm', 'pack', '--silent', '--pack-destination', root], clone, process.env);
    compiled = readdirSync(join(clone, 'dist'));
    rmSync(clone, { recursive: true });
    giveTools(join(root, 'bin'));
    for (const folder of [join(root, 'home'), project]) {
      mkdirSync(folder);
      chownSync(folder, STRANGER, STRANGER);
    }
    chmodSync(root, 0o755);
    // Without it, npm would look for a project in the folders above.
    writeFileSync(join(project, 'package.json'), '{ "private": true }\n');
    chownSync(join(project, 'package.json'), STRANGER, STRANGER);
    expect(pack.status, pack.stderr).toBe(0);
    const [tarball = 'no tarball'] = readdirSync(root).filter((name) => name.endsWith('.tgz'));
    install = await asStranger('npm', 'install', '--no-audit', '--no-fund', `../${tarball}`);
  });

  afterAll(() => rmSync(root, { recursive: true, force: true }));

  it('is packed from a fresh clone and installed without a compiler', () => {
    expect({ status: pack.status, stderr: pack.stderr }).toMatchObject({ status: 0 });
    expect(install.status, install.stderr).toBe(0);
  });

  it('carries neither tests nor build information', () => {
    const names = filesOf(/./);
    expect(names.length).toBeGreaterThan(500);
    expect(names.filter((name) => /(^|\/)dist\/test\/|\.tsbuildinfo$|\.test\./.test(name))).toEqual(
      [],
    );
  });

  it('is packed without compiling the tests', () => {
    expect(compiled).toContain('daemon');
    expect(compiled).not.toContain('test');
  });

  it('contains source maps with their sources', () => {
    const maps = filesOf(/\.map$/);
    expect(maps.length).toBeGreaterThan(300);
    for (const name of maps) {
      const map: { sourcesContent?: unknown[] } = JSON.parse(
        readFileSync(join(installed, name), 'utf8'),
      );
      expect(
        map.sourcesContent?.every((text) => typeof text === 'string'),
        name,
      ).toBe(true);
    }
  });

  it('carries documents whose links lead to files of the package', () => {
    const documents = filesOf(/\.md$/);
    const broken = documents.flatMap((name) => {
      const text = readFileSync(join(installed, name), 'utf8');
      return [...text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)]
        .map(([, target = '']) => target)
        .filter((target) => !existsSync(resolve(installed, dirname(name), target)))
        .map((target) => `${name}: ${target}`);
    });
    expect(documents).toContain('README.md');
    expect(broken).toEqual([]);
  });

  it.each(['x64', 'arm64'] as const)('carries a stripped preload library for %s', (machine) => {
    const path = `dist/native-bridge/preload/linux-${machine}/libiwarpd-preload.so`;
    const bytes = readFileSync(join(installed, path));
    const elf = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    expect(elf.getUint16(ELF_MACHINE_OFFSET, true)).toBe(ELF_MACHINES[machine]);
    expect(sectionTypes(elf)).not.toContain(SECTION_SYMTAB);
  });

  it('runs an unmodified program', async () => {
    const words = ['npx', 'iwarpd', 'run', '--fresh', '--', 'ibv_devices'];
    const { status, stdout, stderr } = await asStranger(...words);
    expect(status, stderr).toBe(0);
    expect(stdout).toContain('iwarp0');
  });

  it('finds nothing broken with `iwarpd doctor`', async () => {
    const { status, stdout } = await asStranger('npx', 'iwarpd', 'doctor');
    expect(status, stdout).toBe(0);
    expect(stdout).toMatch(/^ok +preload/m);
  });

  it('has the page', async () => {
    expect(readFileSync(join(installed, 'dist/daemon/page/bundle.html'), 'utf8')).toContain(
      '<!doctype html>',
    );
  });

  it('has the manual page', () => {
    expect(readFileSync(join(installed, 'dist/man/iwarpd.1'), 'utf8')).toContain('.SH SYNOPSIS');
  });

  it('names what `setup-preload` lacks', async () => {
    const { status, stderr } = await asStranger('npx', 'iwarpd', 'setup-preload');
    expect(status).toBe(1);
    expect(stderr).toMatch(
      /^iwarpd: cannot compile the preload library: .*cc.*apt-get install gcc/,
    );
  });

  it('compiles the preload library with `setup-preload`, and uses it', async () => {
    const data = join(root, 'data');
    const environment = { ...process.env, XDG_DATA_HOME: data };
    const command = join(installed, 'dist/daemon/cli/main.js');
    const setup = await run(['node', command, 'setup-preload'], root, environment);
    expect(setup.status, setup.stderr).toBe(0);
    expect(setup.stdout).toMatch(/data\/iwarpd\/preload-[0-9a-f]{16}\/libiwarpd-preload\.so\n$/);
    const program = ['run', '--fresh', '--', 'sh', '-c', 'echo "$LD_PRELOAD"'];
    const { stdout } = await run(['node', command, ...program], root, environment);
    expect(stdout).toBe(setup.stdout);
  });

  it('compiles in a TypeScript project that checks libraries, and runs', async () => {
    const manifest = JSON.parse(readFileSync(join(repositoryRoot(), 'package.json'), 'utf8'));
    const { '@types/node': types, typescript } = manifest.devDependencies;
    writeFileSync(
      join(project, 'app.mts'),
      `import { connect, listen } from 'iwarpd';
import { createEmbedded } from 'iwarpd/embedded';
import { createNative } from 'iwarpd/native';
import { listenRpc } from 'iwarpd/rpcrdma';
import { withFault } from 'iwarpd/testing';

await using embedded = await createEmbedded();
const names = (await embedded.devices()).map(({ name }) => name);
console.log(names, [connect, listen, createNative, listenRpc, withFault].length);
`,
    );
    const compilerOptions = {
      target: 'ES2023',
      lib: ['ES2023', 'ESNext.Disposable'],
      module: 'NodeNext',
      strict: true,
      skipLibCheck: false,
      types: ['node'],
    };
    const config = { compilerOptions, files: ['app.mts'] };
    writeFileSync(join(project, 'tsconfig.json'), JSON.stringify(config));
    const packages = [`typescript@${typescript}`, `@types/node@${types}`];
    const got = await asStranger('npm', 'install', '--no-audit', '--no-fund', ...packages);
    expect(got.status, got.stderr).toBe(0);
    const compiled = await asStranger('npx', 'tsc', '--outDir', join(root, 'home'));
    expect(compiled.stdout).toBe('');
    const moved = join(project, 'app.mjs');
    cpSync(join(root, 'home/app.mjs'), moved);
    const { stdout, stderr } = await asStranger('node', moved);
    expect(stderr).toBe('');
    expect(stdout).toContain("[ 'iwarp0' ]");
  });
});
