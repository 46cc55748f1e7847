/**
 * The kernel that guests boot: Debian's own, with siw built for it from the same source package.
 *
 * Debian 12 ships no siw, but all of its dependencies. Packages are fetched with apt's ordinary
 * client into the cache and unpacked there: nothing is installed, so no privilege is needed. The
 * result is a kernel, one initrd with every module a guest needs, and the probes.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { repositoryRoot } from '#test/support/prerequisites';
import { exposeSiwParameters } from './siw-parameters.ts';

/** Files and options for booting; all paths are absolute. */
export interface KernelPeerImage {
  readonly kernel: string;
  readonly initrd: string;
  /** Directory of the compiled probes, for the guest's PATH. */
  readonly probes: string;
}

/** Modules to load in a guest, in order of dependence. */
const GUEST_MODULES = [
  'virtio_pci',
  'qemu_fw_cfg',
  'virtio_console',
  '9pnet_virtio',
  '9p',
  'overlay',
  'virtio_net',
  'tcp_diag',
  'crc32c_generic',
  'ib_uverbs',
  'rdma_ucm',
] as const;

/** Further modules of a guest with NFS: both ends of NFSv3, and RPC-over-RDMA under them. */
const NFS_MODULES = ['rpcrdma', 'nfsv3', 'nfsd'] as const;

/** Further modules of a guest with rxe: a wire within it, and damage to wires. */
const RXE_MODULES = [
  'crc32_generic',
  'rdma_rxe',
  'veth',
  'sch_netem',
  'sch_prio',
  'sch_ingress',
  'cls_u32',
  'act_mirred',
  'ifb',
] as const;

/** Further modules of a guest with SCTP: what signs its cookies, and loss on a wire. */
const SCTP_MODULES = [
  'hmac',
  'sha1_generic',
  'sha256_generic',
  'sctp',
  'veth',
  'sch_netem',
] as const;

/** Further modules of a guest with iSER: disks of an iSCSI target. */
const ISER_MODULES = ['sd_mod', 'ib_iser'] as const;

/** Further modules of a guest with NVMe over RDMA. */
const NVME_MODULES = ['nvme_rdma'] as const;

const SIW_SOURCES = 'drivers/infiniband/sw/siw';

/** Directory of the harness's guest programs. */
export function guestTools(): string {
  return join(repositoryRoot(), 'test/interop/kernel-peer/guest');
}

/** Where images are kept for later runs, and what guests share of them. */
export function cacheDirectory(): string {
  const caches = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return join(caches, 'iwarpd/kernel-peer');
}

const execute = promisify(execFile);

/** Runs a program to its end and returns its output; on failure throws the end of it. */
async function command(program: string, ...parameters: string[]): Promise<string> {
  try {
    const environment = { ...process.env, LC_ALL: 'C.UTF-8' };
    const options = { env: environment, maxBuffer: 64 << 20 };
    return (await execute(program, parameters, options)).stdout;
  } catch (error) {
    const { stderr = '', stdout = '' } = error as { stderr?: string; stdout?: string };
    const said = (stderr || stdout || String(error)).trim().split('\n').slice(-12).join('\n');
    throw new Error(`${program} ${parameters.slice(0, 3).join(' ')} … failed:\n${said}`);
  }
}

/** apt with its own, current lists and caches, without root and without changing the host's. */
class PackageSource {
  readonly #directory: string;
  readonly #options: readonly string[];
  #complaint = '';

  private constructor(directory: string) {
    this.#directory = directory;
    this.#options = [
      ['Dir::State::Lists', join(directory, 'lists')],
      ['Dir::Cache', join(directory, 'cache')],
      ['APT::Sandbox::User', ''],
      ['Acquire::Languages', 'none'],
    ].flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  }

  static async open(directory: string): Promise<PackageSource> {
    await mkdir(join(directory, 'lists/partial'), { recursive: true });
    await mkdir(join(directory, 'cache/archives/partial'), { recursive: true });
    const source = new PackageSource(directory);
    // One of several sources may be unreachable; it matters only if it has the kernel.
    await command('apt-get', ...source.#options, 'update', '-qq').catch((error: Error) => {
      source.#complaint = `; ${error.message}`;
    });
    return source;
  }

  /** The kernel release that Debian's meta package stands for now, and the version of its packages. */
  async currentKernel(): Promise<{ release: string; version: string }> {
    const dependencies = await command(
      'apt-cache',
      ...this.#options,
      'depends',
      'linux-image-amd64',
    );
    const release = /Depends: linux-image-(\d\S+)/.exec(dependencies)?.[1];
    if (release === undefined) {
      throw new Error(`apt knows no linux-image-amd64${this.#complaint}`);
    }
    const record = await command(
      'apt-cache',
      ...this.#options,
      'show',
      '--no-all-versions',
      `linux-image-${release}`,
    );
    const version = /^Version: (\S+)/m.exec(record)?.[1];
    if (version === undefined) throw new Error(`apt knows no linux-image-${release}`);
    return { release, version };
  }

  /**
   * Fetches a package, in another version if apt lists no `version`, and returns the path of its archive:
   * while Debian publishes a kernel, its packages appear one by one.
   */
  async fetch(name: string, version: string): Promise<string> {
    const known = await command('apt-cache', ...this.#options, 'madison', name);
    const wanted = known.includes(` ${version} `) ? `${name}=${version}` : name;
    const directory = join(this.#directory, name);
    await mkdir(directory);
    await command(
      'bash',
      '-c',
      'cd "$1" && shift && exec apt-get "$@"',
      'fetch',
      directory,
      ...this.#options,
      'download',
      '-qq',
      wanted,
    );
    const [archive] = await readdir(directory);
    if (archive === undefined) throw new Error(`apt-get downloaded no ${name}`);
    return join(directory, archive);
  }
}

/** Builds siw with its choices exposed; returns the path of the module. */
async function buildSiw(
  source: PackageSource,
  work: string,
  release: string,
  version: string,
): Promise<string> {
  const series = release.split('.').slice(0, 2).join('.');
  const flavour = /-[a-z]\w*$/.exec(release)?.[0] ?? '';
  const common = `linux-headers-${release.slice(0, release.length - flavour.length)}-common`;
  const headers = `linux-headers-${release}`;
  const tree = join(work, 'headers');
  for (const name of [headers, common, `linux-kbuild-${series}`]) {
    await command('dpkg', '-x', await source.fetch(name, version), tree);
  }
  // The headers name each other by the place where they would be installed.
  const makefile = join(tree, 'usr/src', headers, 'Makefile');
  const rules = await readFile(makefile, 'utf8');
  await writeFile(makefile, rules.replaceAll('/usr/src/', `${tree}/usr/src/`));

  const driver = join(work, 'siw');
  await mkdir(driver);
  const unpack =
    'set -o pipefail; dpkg --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" |' +
    ' tar -xJ -C "$3" --strip-components=5 "$2/$4"';
  const sourceName = `linux-source-${series}`;
  const archive = await source.fetch(sourceName, version);
  await command('bash', '-c', unpack, 'unpack', archive, sourceName, driver, SIW_SOURCES);
  const sources = new Map<string, string>();
  for (const name of await readdir(driver)) {
    sources.set(name, await readFile(join(driver, name), 'utf8'));
  }
  for (const [name, text] of exposeSiwParameters(sources))
    await writeFile(join(driver, name), text);
  await command(
    'make',
    '-s',
    '-C',
    join(tree, 'usr/src', headers),
    `M=${driver}`,
    'CONFIG_RDMA_SIW=m',
    'modules',
  );
  return join(driver, 'siw.ko');
}

/** Paths of `modules` and of all that they need, dependencies first. */
async function moduleClosure(
  root: string,
  release: string,
  modules: readonly string[],
): Promise<string[]> {
  const paths = new Set<string>();
  for (const name of modules) {
    const plan = await command('modprobe', '-d', root, '-S', release, '--show-depends', name);
    for (const [, path = ''] of plan.matchAll(/^insmod (\S+)/gm)) paths.add(path);
  }
  return [...paths];
}

async function packInitrd(
  work: string,
  root: string,
  release: string,
  target: string,
): Promise<void> {
  const initrd = join(work, 'initrd');
  await mkdir(join(initrd, 'bin'), { recursive: true });
  await copyFile(await realProgram('busybox'), join(initrd, 'bin/busybox'));
  await copyFile(join(guestTools(), 'early-init'), join(initrd, 'init'));
  await chmod(join(initrd, 'init'), 0o755);
  const base = await moduleClosure(root, release, [...GUEST_MODULES, 'siw']);
  const addModules = async (folder: string, modules: readonly string[]): Promise<void> => {
    const closure = await moduleClosure(root, release, modules);
    const added = folder === 'modules' ? closure : closure.filter((path) => !base.includes(path));
    await mkdir(join(initrd, folder));
    for (const [index, path] of added.entries()) {
      const name = basename(path);
      const numbered = `${folder}/${String(index).padStart(3, '0')}-${name}`;
      await copyFile(path, join(initrd, name === 'siw.ko' ? name : numbered));
    }
  };
  await addModules('modules', [...GUEST_MODULES, 'siw']);
  await addModules('iser-modules', ISER_MODULES);
  await addModules('nfs-modules', NFS_MODULES);
  await addModules('nvme-modules', NVME_MODULES);
  await addModules('rxe-modules', RXE_MODULES);
  await addModules('sctp-modules', SCTP_MODULES);
  const pack = 'set -o pipefail; cd "$1" && find . | sort | cpio -o -H newc --quiet >"$2"';
  await command('bash', '-c', pack, 'pack', initrd, target);
}

/** Where xz's data begin. */
const XZ_MAGIC = Buffer.from('fd377a585a00', 'hex');

/**
 * Unpacks a kernel, which QEMU boots as well: the kernel itself would take an emulated processor three
 * seconds for that. One that is not packed with xz stays as it is.
 */
async function unpackKernel(packed: string, target: string): Promise<void> {
  const start = (await readFile(packed)).indexOf(XZ_MAGIC);
  if (start === -1) return await copyFile(packed, target);
  // xz complains of what follows its data.
  const unpack = 'tail -c +"$2" "$1" | xz -dc --single-stream 2>/dev/null >"$3"; test -s "$3"';
  await command('bash', '-c', unpack, 'unpack', packed, `${start + 1}`, target);
}

async function realProgram(name: string): Promise<string> {
  return (await command('bash', '-c', 'type -P "$1"', 'find', name)).trim();
}

async function build(work: string, target: string): Promise<void> {
  const source = await PackageSource.open(join(work, 'apt'));
  const { release, version } = await source.currentKernel();
  const root = join(work, 'root');
  await command('dpkg', '-x', await source.fetch(`linux-image-${release}`, version), root);
  const updates = join(root, 'lib/modules', release, 'updates');
  await mkdir(updates);
  await copyFile(await buildSiw(source, work, release, version), join(updates, 'siw.ko'));
  await command('depmod', '-b', root, release);

  await mkdir(join(target, 'probes'), { recursive: true });
  await unpackKernel(join(root, 'boot', `vmlinuz-${release}`), join(target, 'vmlinux'));
  await packInitrd(work, root, release, join(target, 'initrd'));
  const probe = join(guestTools(), '../probe/verbs-probe.c');
  const output = join(target, 'probes/verbs-probe');
  await command('gcc', '-O2', '-Wall', '-Werror', '-o', output, probe, '-lrdmacm', '-libverbs');
  await writeFile(join(target, 'release'), `${release}\n`);
}

/** A name from all inputs of the image, so that a change makes another image. */
function recipeDigest(): string {
  const digest = createHash('sha256');
  const directory = join(repositoryRoot(), 'test/interop/kernel-peer');
  for (const name of [
    'kernel-image.ts',
    'siw-parameters.ts',
    'guest/early-init',
    'probe/verbs-probe.c',
  ]) {
    digest.update(readFileSync(join(directory, name)));
  }
  return digest.digest('hex').slice(0, 16);
}

/**
 * Makes the image, or finds it in the cache (`$XDG_CACHE_HOME`, else ~/.cache, `iwarpd/kernel-peer`).
 * Half a minute and 250 MB of downloads the first time. Throws with the cause when it cannot.
 */
export async function prepareKernelPeer(): Promise<KernelPeerImage> {
  const image = join(cacheDirectory(), recipeDigest());
  if (!existsSync(image)) {
    if (process.arch !== 'x64') throw new Error('the kernel peer is made for x86-64 alone');
    // Made aside and put in place whole: the second of two processes drops its copy.
    await mkdir(cacheDirectory(), { recursive: true });
    const work = await mkdtemp(`${image}.`);
    try {
      const target = join(work, 'image');
      await mkdir(target);
      await build(work, target);
      await rename(target, image).catch((error: unknown) => {
        if (!existsSync(image)) throw error;
      });
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  }
  return {
    kernel: join(image, 'vmlinux'),
    initrd: join(image, 'initrd'),
    probes: join(image, 'probes'),
  };
}
