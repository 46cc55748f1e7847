/**
 * A plain root file system: a minimal Debian with this machine's Node.js and npm.
 *
 * It replaces the Dockerfile's base image if that cannot be pulled, and serves as the machine of a
 * workflow. Debian's part is kept in the cache (`$XDG_CACHE_HOME`, else ~/.cache,
 * `iwarpd/containers`), since it is the same every time.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { cp, mkdir, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { DEBIAN_RELEASE, debianMirror } from './obstacle.ts';
import type { World } from './world.ts';

const execute = promisify(execFile);
const DEBOOTSTRAP_TIMEOUT_MS = 180_000;
const TAR_TIMEOUT_MS = 60_000;

/** Packages beyond Debian's essential ones. */
const INCLUDED = ['ca-certificates', 'libstdc++6'];

/** Files of this machine in a container's root file system, by their names there. */
interface RegistryAccess {
  /** Certificates that this machine trusts. */
  readonly certificates: string;
  /** npm's settings of the registry. */
  readonly npmrc: string;
}

/** Where certificates are in Debian. */
export const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

/** Settings that Debian's own images have, so that apt and dpkg do less. */
const SETTINGS = {
  'etc/apt/apt.conf.d/images': [
    'Acquire::Languages "none";',
    'Acquire::GzipIndexes "true";',
    'Acquire::CompressionTypes::Order:: "gz";',
  ],
  'etc/dpkg/dpkg.cfg.d/images': ['force-unsafe-io'],
} as const;

/** Makes the root file system in `folder`, which must not exist. */
export async function makeBaseRoot(world: World, folder: string): Promise<void> {
  const archive = await debianArchive(world);
  await mkdir(folder);
  const unpack = ['tar', '-C', folder, '--numeric-owner', '-xf', archive];
  await world.output(unpack, { timeoutMs: TAR_TIMEOUT_MS });
  for (const [name, lines] of Object.entries(SETTINGS)) {
    await writeFile(join(folder, name), `${lines.join('\n')}\n`);
  }
  await addNode(join(folder, 'usr/local'));
}

/**
 * Settings for downloads from npm's registry inside a root file system, written to files of `world`
 * that are mounted there: for example, a proxy's certificate that only this machine trusts.
 */
export async function registryAccess(world: World): Promise<RegistryAccess> {
  const { stdout } = await execute('npm', ['config', 'get', 'registry']);
  const npmrc = world.file('npmrc');
  await writeFile(npmrc, `registry=${stdout.trim()}\ncafile=${CERTIFICATES}\n`);
  return { certificates: process.env['NODE_EXTRA_CA_CERTS'] ?? CERTIFICATES, npmrc };
}

/** Debian's part as an archive; made when the cache lacks it. */
async function debianArchive(world: World): Promise<string> {
  const mirror = await debianMirror();
  if (mirror === undefined) throw new Error(`no mirror of Debian ${DEBIAN_RELEASE} is configured`);
  const recipe = [DEBIAN_RELEASE, mirror, process.arch, ...INCLUDED].join(' ');
  const key = createHash('sha256').update(recipe).digest('hex').slice(0, 12);
  const caches = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  const cache = join(caches, 'iwarpd/containers');
  const archive = join(cache, `debian-${key}.tar`);
  if (existsSync(archive)) return archive;
  await mkdir(cache, { recursive: true, mode: 0o700 });
  const root = world.file('debian');
  const words = ['--variant=minbase', `--include=${INCLUDED.join(',')}`, DEBIAN_RELEASE];
  await world.output(['debootstrap', ...words, root, mirror], {
    network: 'machine',
    timeoutMs: DEBOOTSTRAP_TIMEOUT_MS,
  });
  // Written to another name and renamed, so a concurrent run sees all of it or nothing.
  const partial = `${archive}.${process.pid}`;
  const downloads = ['./dev', './proc', './sys', './var/cache/apt', './var/lib/apt/lists'];
  const left = downloads.map((name) => `--exclude=${name}/*`);
  await world.output(['tar', '-C', root, '--numeric-owner', ...left, '-cf', partial, '.'], {
    timeoutMs: TAR_TIMEOUT_MS,
  });
  await rename(partial, archive);
  await rm(root, { recursive: true, force: true });
  return archive;
}

/** Adds Node.js, its headers and npm below `prefix`, laid out as in Node's own images. */
async function addNode(prefix: string): Promise<void> {
  const node = realpathSync(process.execPath);
  const npm = await npmFolder();
  await cp(node, join(prefix, 'bin/node'));
  const headers = join(dirname(dirname(node)), 'include/node');
  if (existsSync(headers)) await cp(headers, join(prefix, 'include/node'), { recursive: true });
  await cp(npm, join(prefix, 'lib/node_modules/npm'), { recursive: true });
  for (const name of ['npm', 'npx']) {
    await symlink(`../lib/node_modules/npm/bin/${name}-cli.js`, join(prefix, 'bin', name));
  }
}

/** The package npm itself, on this machine. */
async function npmFolder(): Promise<string> {
  const { stdout } = await execute('npm', ['root', '--global']);
  const beside = join(stdout.trim(), 'npm');
  if ((await readdir(beside)).includes('package.json')) return realpathSync(beside);
  throw new Error(`there is no npm in ${beside}`);
}
