/**
 * rdma-core and perftest of Debian's arm64, unpacked in a folder. apt's ordinary client fetches
 * them with separate package lists; nothing is installed, so no privilege is needed.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);

/** The programs and their libraries. */
const PACKAGES = [
  'libc6',
  'libgcc-s1',
  'libibverbs1',
  'ibverbs-providers',
  'ibverbs-utils',
  'librdmacm1',
  'rdmacm-utils',
  'libibumad3',
  'libnl-3-200',
  'libnl-route-3-200',
  'libpci3',
  'libudev1',
  'zlib1g',
  'perftest',
] as const;

/** Configures apt for an arm64 machine with no packages installed. */
function settings(directory: string): string {
  return [
    'APT::Architecture "arm64";',
    'APT::Architectures { "arm64"; };',
    `Dir::State "${directory}/state";`,
    `Dir::State::status "${directory}/status";`,
    `Dir::Cache "${directory}/cache";`,
    'APT::Sandbox::User "";',
    'Acquire::Languages "none";',
  ].join('\n');
}

async function fetchInto(work: string, root: string): Promise<void> {
  const packages = join(work, 'packages');
  for (const folder of ['state/lists/partial', 'cache/archives/partial', 'packages']) {
    await mkdir(join(work, folder), { recursive: true });
  }
  await writeFile(join(work, 'status'), '');
  await writeFile(join(work, 'apt.conf'), settings(work));
  const env = { ...process.env, LC_ALL: 'C.UTF-8', APT_CONFIG: join(work, 'apt.conf') };
  await execute('apt-get', ['update', '-qq'], { env });
  await execute('apt-get', ['download', '-qq', ...PACKAGES], { env, cwd: packages });
  for (const archive of await readdir(packages)) {
    await execute('dpkg', ['-x', join(packages, archive), root]);
  }
}

/**
 * The root folder of the arm64 machine, made now or found in the cache (`$XDG_CACHE_HOME`, else
 * ~/.cache, `iwarpd/arm64`). Throws if the packages cannot be fetched.
 */
export async function prepareArm64Root(): Promise<string> {
  const caches = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  const digest = createHash('sha256').update(PACKAGES.join(' ')).digest('hex').slice(0, 16);
  const place = join(caches, 'iwarpd/arm64', digest);
  if (existsSync(place)) return place;
  await mkdir(join(caches, 'iwarpd/arm64'), { recursive: true });
  // Built elsewhere and renamed into place; of two concurrent builds, the later drops its copy.
  const work = await mkdtemp(`${place}.`);
  try {
    await fetchInto(work, join(work, 'root'));
    await rename(join(work, 'root'), place).catch((error: unknown) => {
      if (!existsSync(place)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return place;
}
