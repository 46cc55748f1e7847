import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { fetchWith, madeToken } from '../support/http-token.ts';
import { repositoryRoot } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const DIST = join(repositoryRoot(), 'dist');
const BUNDLE = join(DIST, 'daemon/command');

describe('the bundled command', () => {
  it('comes with the license of each package in it', () => {
    const texts = readdirSync(BUNDLE)
      .filter((name) => name.endsWith('.js'))
      .map((name) => readFileSync(join(BUNDLE, name), 'utf8'));
    const packages = new Set(
      texts.flatMap((text) =>
        [...text.matchAll(/^\/\/ node_modules\/((?:@[^/]+\/)?[^/]+)/gm)].map(([, name]) => name),
      ),
    );
    expect(packages).toContain('commander');
    const licenses = readFileSync(join(BUNDLE, 'LICENSES.txt'), 'utf8');
    const missing = [...packages].filter((name) => !licenses.includes(`${name} `));
    expect(missing).toEqual([]);
  });

  it('leaves native code to the packages that load it', () => {
    expect(readdirSync(BUNDLE).join(' ')).not.toMatch(/\.node\b/);
  });
});

describe('the entry point', () => {
  let folder: string;

  beforeEach(() => {
    folder = temporaryFolder();
    place('package.json', '{"type":"module"}', 1);
    place('daemon/cli/main.js', '', 1);
    copyFileSync(join(DIST, 'daemon/cli/main.js'), join(folder, 'daemon/cli/main.js'));
    place('daemon/cli/command.js', 'console.log("as compiled")', 1);
  });

  /** Writes a file that was last modified at this second. */
  function place(path: string, text: string, second: number): void {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
    utimesSync(file, second, second);
  }

  const run = (): string =>
    execFileSync(process.execPath, [join(folder, 'daemon/cli/main.js')], {
      encoding: 'utf8',
    }).trim();
  const bundle = (second: number): void =>
    place('daemon/command/command.js', 'console.log("bundled")', second);
  const compiled = (second: number): void => {
    place('daemon/command/compiled.json', '["../rnic/.tsbuildinfo","../cli/.tsbuildinfo"]', 1);
    place('daemon/rnic/.tsbuildinfo', '', 1);
    place('daemon/cli/.tsbuildinfo', '', second);
  };

  it('runs the compiled modules if nothing is bundled', () => {
    expect(run()).toBe('as compiled');
  });

  it('runs the bundle in a package without compiled projects', () => {
    bundle(1);
    expect(run()).toBe('bundled');
  });

  it('runs a bundle that is newer than all compiled projects', () => {
    bundle(3);
    compiled(2);
    expect(run()).toBe('bundled');
  });

  it('runs the compiled modules if any is newer than the bundle', () => {
    bundle(3);
    compiled(4);
    expect(run()).toBe('as compiled');
  });

  it('runs the compiled modules if a project of the bundle is missing', () => {
    bundle(3);
    compiled(2);
    rmSync(join(folder, 'daemon/rnic'), { recursive: true });
    expect(run()).toBe('as compiled');
  });
});

it('has all that a daemon with HTTP serves, once it has answered a request, if its files are replaced', async () => {
  const root = temporaryFolder();
  for (const name of ['package.json', 'node_modules', 'native-bridge', 'dist/native-bridge']) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    symlinkSync(join(repositoryRoot(), name), join(root, name));
  }
  const bundle = join(root, 'dist/daemon/command');
  cpSync(BUNDLE, bundle, { recursive: true });
  rmSync(join(bundle, 'compiled.json'));
  const main = join(root, 'dist/daemon/cli/main.js');
  mkdirSync(dirname(main));
  copyFileSync(join(DIST, 'daemon/cli/main.js'), main);
  const socket = join(root, 's');
  const words = [main, 'start', '--socket', socket, '--device', 'one=127.0.72.37'];
  const daemon = spawn(
    process.execPath,
    [...words, '--http', '127.0.0.1:0', '--log-level', 'warn'],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  onTestFinished(async () => {
    daemon.kill('SIGKILL');
    if (daemon.exitCode === null) await once(daemon, 'exit');
  });
  let printed = '';
  for await (const text of daemon.stdout.setEncoding('utf8')) {
    printed += text;
    if (printed.includes('\n')) break;
  }
  const url = /http:\/\/127\.0\.0\.1:[0-9]+/.exec(printed)?.[0] ?? printed;
  const statusOf = async (path: string): Promise<number> =>
    (await fetchWith(madeToken(socket), url + path)).status;
  expect(await statusOf('/healthz')).toBe(200);
  rmSync(bundle, { recursive: true });
  for (const path of ['/metrics', '/status', '/openapi.json']) {
    expect(await statusOf(path), path).toBe(200);
  }
});
