/** The environment in which unmodified rdma-core programs find the emulated devices. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ALLOW_DAEMON_VARIABLE } from '#verbs-api/client/daemon-trust';
import { sysfsPath } from '../kernel/sysfs-tree.ts';
import { CommandFailure } from './failure.ts';
import { PRELOAD_FIX, preloadPath, suppressionsPath, type Variables } from './preload-library.ts';

/** gcc's address sanitizer ends a program if any library is loaded before its runtime. */
const MUST_COME_FIRST = /^libasan\.so(?:\.\d+)*$/;

/**
 * For programs that a shell or make starts, whose runtimes the environment cannot name. The runtime also
 * works if loaded after this library, which does not use malloc.
 */
const ANY_ORDER = 'verify_asan_link_order=0';

/**
 * libfabric connects only by rdma_cm, and by default uses the first device, whose queue pairs rdma_cm
 * perhaps cannot connect.
 */
const LIBFABRIC_VARIABLE = 'FI_VERBS_DEVICE_NAME';

/**
 * NCCL 2.28 calls its plugin of GPU-initiated networking (GIN), which without an mlx5 device it has not
 * loaded, and crashes; with 0 it does not look for one.
 */
const GIN_VARIABLE = 'NCCL_GIN_TYPE';

/** NCCL takes every device whose link is Ethernet, but connects queue pairs as on RoCE only. */
const NCCL_DEVICES_VARIABLE = 'NCCL_IB_HCA';

/**
 * The variables that direct a program to the daemon at `socketPath`. `inherited` is the current
 * environment: libraries that it preloads stay. `needed` are the program's libraries.
 * CommandFailure if there is no preload library.
 */
export function shimVariables(
  socketPath: string,
  inherited: Variables,
  needed: readonly string[] = [],
): Record<string, string> {
  checkShim(preloadPath(), existsSync(preloadPath()));
  const path = resolve(socketPath);
  const allowed = inherited[ALLOW_DAEMON_VARIABLE];
  const devices = devicesOf(sysfsPath(path));
  const libfabricDevice = inherited[LIBFABRIC_VARIABLE] ?? rdmaCmDevice(devices);
  const ncclDevices = inherited[NCCL_DEVICES_VARIABLE] ?? allButIwarp(devices);
  return {
    LD_PRELOAD: [
      ...needed.filter((name) => MUST_COME_FIRST.test(name)),
      preloadList(preloadPath(), inherited['LD_PRELOAD']),
    ].join(':'),
    SYSFS_PATH: sysfsPath(path),
    IWARPD_SOCKET: path,
    ASAN_OPTIONS: withOption(ANY_ORDER, inherited['ASAN_OPTIONS'], ':'),
    ...valgrindVariables(suppressionsPath(), inherited['VALGRIND_OPTS']),
    [GIN_VARIABLE]: inherited[GIN_VARIABLE] ?? '0',
    ...(libfabricDevice === undefined ? {} : { [LIBFABRIC_VARIABLE]: libfabricDevice }),
    ...(ncclDevices === undefined ? {} : { [NCCL_DEVICES_VARIABLE]: ncclDevices }),
    ...(allowed === undefined || allowed === '' ? {} : { [ALLOW_DAEMON_VARIABLE]: allowed }),
  };
}

/** The suppressions for valgrind, if there are any; valgrind cannot parse a path with a space. */
export function valgrindVariables(
  path: string | undefined,
  inherited: string | undefined,
): Record<string, string> {
  if (path === undefined || /\s/.test(path)) return {};
  return { VALGRIND_OPTS: withOption(`--suppressions=${path}`, inherited, ' ') };
}

/** A list of options with `option` first, once: the user's options come later and take precedence. */
function withOption(option: string, inherited: string | undefined, separator: string): string {
  const others = (inherited ?? '')
    .split(separator)
    .filter((each) => each !== '' && each !== option);
  return [option, ...others].join(separator);
}

/** CommandFailure for a missing library, or one whose path LD_PRELOAD cannot contain. */
export function checkShim(path: string, exists: boolean): void {
  if (!exists) {
    throw new CommandFailure(`no preload library for this machine (${path}); ${PRELOAD_FIX}`);
  }
  if (/[\s:]/.test(path)) {
    throw new CommandFailure(
      `LD_PRELOAD cannot contain a path with a space or colon (${path}); install iwarpd elsewhere`,
    );
  }
}

/** The list for LD_PRELOAD with `path` first, once. */
export function preloadList(path: string, inherited: string | undefined): string {
  return [path, ...otherLibraries(path, inherited)].join(':');
}

/** LD_PRELOAD of a program that would not start with the library: the other inherited libraries. */
export function preloadedWithoutShim(inherited: Variables): string {
  return otherLibraries(preloadPath(), inherited['LD_PRELOAD']).join(':');
}

function otherLibraries(path: string, inherited: string | undefined): readonly string[] {
  return (inherited ?? '').split(/[\s:]+/).filter((name) => name !== '' && name !== path);
}

/** Lines that set the variables in a POSIX shell. */
export function exportLines(variables: Readonly<Record<string, string>>): string[] {
  return Object.entries(variables).map(([name, value]) => `export ${name}=${quoted(value)}`);
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

interface TreeDevice {
  readonly name: string;
  readonly isIwarp: boolean;
}

/** Devices of the tree in the order in which programs find them; none if it cannot be read. */
function devicesOf(sysfs: string): readonly TreeDevice[] {
  const verbs = join(sysfs, 'class/infiniband_verbs');
  try {
    const nodes = readdirSync(verbs).filter((name) => /^uverbs\d+$/.test(name));
    nodes.sort((a, b) => numberOf(a) - numberOf(b));
    return nodes.map((node) => {
      const name = readFileSync(join(verbs, node, 'ibdev'), 'utf8').trim();
      if (!/^[\w.-]{1,63}$/.test(name)) return { name, isIwarp: false };
      const type = readFileSync(join(sysfs, 'class/infiniband', name, 'node_type'), 'utf8');
      return { name, isIwarp: type.trim() === '4: RNIC' };
    });
  } catch {
    return [];
  }
}

/**
 * The first device that connects by rdma_cm, if the first device of all does not: programs that use
 * the first one then need its name.
 */
function rdmaCmDevice(devices: readonly TreeDevice[]): string | undefined {
  const [first, ...others] = devices;
  return first?.isIwarp === true ? undefined : others.find(({ isIwarp }) => isIwarp)?.name;
}

/** NCCL's list of the devices that it leaves out; undefined if there are none. */
function allButIwarp(devices: readonly TreeDevice[]): string | undefined {
  const names = devices.filter(({ isIwarp }) => isIwarp).map(({ name }) => name);
  return names.length === 0 ? undefined : `^=${names.join(',')}`;
}

function numberOf(node: string): number {
  return Number(node.slice('uverbs'.length));
}
