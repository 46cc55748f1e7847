/**
 * What `iwarpd doctor` finds of real RDMA devices: each link of the chain by which a program on this
 * machine gets at one, so that the missing link is named. Nothing here is needed for emulated ones.
 */
import { closeSync, constants, existsSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { networkInterfaces, release } from 'node:os';
import { join } from 'node:path';
import type { Check, Finding } from './doctor-checks.ts';
import { failureCode, failureText } from './failure.ts';

/** A port of a real device, as sysfs tells. */
export interface RealPort {
  readonly number: string;
  /** For example `ACTIVE`. */
  readonly state: string;
  /** For example `LinkUp`. */
  readonly physicalState: string;
  /** The network interfaces that it may belong to; none where sysfs does not tell. */
  readonly interfaces: readonly string[];
}

/** A real device, as sysfs tells. */
export interface RealDevice {
  readonly name: string;
  /** `RNIC` for iWARP, `CA` for InfiniBand and RoCE. */
  readonly nodeType: string;
  readonly description: string;
  /** Name of its node for programs, for example `uverbs0`. */
  readonly node: string | undefined;
  readonly ports: readonly RealPort[];
}

/** `loaded`, or built in; `available`: modprobe would find it; `absent` from this kernel. */
export type ModuleState = 'loaded' | 'available' | 'absent';

/** What every device needs, in the order of their dependencies. */
const COMMON_MODULES = ['ib_core', 'ib_uverbs', 'rdma_cm', 'rdma_ucm'] as const;
/** What makes a device out of any network interface. */
const SOFT_IWARP = 'siw';
/** Registered memory is locked; programs that use RDMA at all want more than some pages. */
const MEMLOCK_MIN_BYTES = 64 * 1024 * 1024;
const CONNECTION_NODE = 'rdma_cm';

/** The checks, in the order in which they are shown. */
export const DEVICE_CHECKS: readonly Check[] = [
  { name: 'kernel modules', examine: () => judgeModules(readModules('/', release())) },
  { name: 'real devices', examine: () => judgeDevices(readRealDevices('/')) },
  { name: 'native bridge', examine: examineBridge },
  { name: 'device nodes', examine: () => judgeNodes(readRealDevices('/'), openNode) },
  {
    name: 'rdma link',
    examine: () => judgeLinks(readRealDevices('/'), Object.keys(networkInterfaces())),
  },
  {
    name: 'memlock',
    examine: () => judgeMemlock(readText('/proc/self/limits'), readRealDevices('/').length > 0),
  },
];

/** The states of the modules of RDMA and of siw, below the file tree `root`. */
export function readModules(root: string, kernelRelease: string): ReadonlyMap<string, ModuleState> {
  const folder = join(root, 'lib/modules', kernelRelease);
  const builtIn = readText(join(folder, 'modules.builtin'));
  const known = readText(join(folder, 'modules.dep'));
  return new Map(
    [...COMMON_MODULES, SOFT_IWARP].map((name) => {
      const listed = new RegExp(`(^|/)${name}\\.ko`, 'm');
      if (existsSync(join(root, 'sys/module', name)) || listed.test(builtIn)) {
        return [name, 'loaded'];
      }
      return [name, listed.test(known) ? 'available' : 'absent'];
    }),
  );
}

/** Judges which of the modules that real devices need are there. */
export function judgeModules(modules: ReadonlyMap<string, ModuleState>): Finding {
  const inState = (wanted: ModuleState) =>
    [...modules].filter(([, state]) => state === wanted).map(([name]) => name);
  const [loaded, available, absent] = [inState('loaded'), inState('available'), inState('absent')];
  const missing = COMMON_MODULES.filter((name) => modules.get(name) !== 'loaded');
  if (missing.length === 0) {
    const text = `loaded: ${loaded.join(', ')}`;
    return available.includes(SOFT_IWARP)
      ? { state: 'ok', text, mend: `modprobe ${SOFT_IWARP}, for a device without hardware` }
      : { state: 'ok', text };
  }
  // Half a stack is a fault; none at all is a machine that does without.
  const state = loaded.length === 0 ? 'info' : 'warn';
  const lists = [
    available.length === 0 ? [] : `not loaded: ${available.join(', ')}`,
    absent.length === 0 ? [] : `neither loaded nor known to modprobe here: ${absent.join(', ')}`,
  ];
  const mend =
    absent.length === 0
      ? `modprobe -a ${available.join(' ')}`
      : 'for real devices, load them on the host of a container, or boot a kernel that has them';
  return { state, text: lists.flat().join('; '), mend };
}

/** The real devices that the kernel shows below the file tree `root`. */
export function readRealDevices(root: string): readonly RealDevice[] {
  const devices = join(root, 'sys/class/infiniband');
  const nodes = join(root, 'sys/class/infiniband_verbs');
  return listed(devices).map((name) => {
    const folder = join(devices, name);
    const ports = listed(join(folder, 'ports')).map((number) => {
      const port = join(folder, 'ports', number);
      return {
        number,
        state: withoutNumber(readText(join(port, 'state'))),
        physicalState: withoutNumber(readText(join(port, 'phys_state'))),
        interfaces: interfacesOf(root, folder, port),
      };
    });
    return {
      name,
      nodeType: withoutNumber(readText(join(folder, 'node_type'))),
      description: readText(join(folder, 'node_desc')).trim(),
      node: listed(nodes).find((node) => readText(join(nodes, node, 'ibdev')).trim() === name),
      ports,
    };
  });
}

/** Network interfaces of a port: of the adapter, or those whose MAC address its GID begins with. */
function interfacesOf(root: string, device: string, port: string): readonly string[] {
  const own = listed(join(device, 'device/net'));
  if (own.length > 0) return own;
  const gid = readText(join(port, 'gids/0')).replaceAll(':', '').slice(0, 12);
  const interfaces = join(root, 'sys/class/net');
  return listed(interfaces).filter((name) => {
    const address = readText(join(interfaces, name, 'address'))
      .trim()
      .replaceAll(':', '');
    return address !== '' && address === gid;
  });
}

/** Judges whether the kernel has a real device at all. */
export function judgeDevices(devices: readonly RealDevice[]): Finding {
  if (devices.length === 0) {
    return {
      state: 'info',
      text: 'the kernel has none',
      mend: `for one without hardware: rdma link add siw0 type siw netdev eth0, with the modules above`,
    };
  }
  const all = devices.map(({ name, nodeType, description }) => {
    const words = [nodeType, description].filter((word) => word !== '').join(', ');
    return `${name} (${words})`;
  });
  // Emulated devices speak iWARP; others are real, but no peers of theirs.
  const others = devices.filter(({ nodeType }) => nodeType !== 'RNIC');
  const foreign = others.length > 0 ? '; only an RNIC speaks iWARP' : '';
  const text = `${all.join(', ')}; hidden from programs under \`iwarpd run\`${foreign}`;
  return { state: 'ok', text };
}

/** Whether the native bridge loads rdma-core, and what that shows to it. */
async function examineBridge(): Promise<Finding> {
  const devices = readRealDevices('/').map(({ name }) => name);
  try {
    const { openLibraries } = await import('../../native-bridge/rdma/libraries.ts');
    const { listDevices } = await import('../../native-bridge/rdma/device-list.ts');
    const libraries = openLibraries();
    const version = libraries.verbsFile.version ?? 'of an unknown version';
    return judgeBridge(devices, { version, seen: listDevices(libraries).map(({ name }) => name) });
  } catch (error) {
    return judgeBridge(devices, { failure: failureText(error) });
  }
}

/** Judges what the bridge sees of the kernel's devices, or why it sees nothing. */
export function judgeBridge(
  devices: readonly string[],
  bridge: { readonly version: string; readonly seen: readonly string[] } | { failure: string },
): Finding {
  const mend = 'apt-get install ibverbs-providers librdmacm1, or what your system calls them';
  if ('failure' in bridge) {
    return { state: devices.length === 0 ? 'info' : 'warn', text: bridge.failure, mend };
  }
  const { version, seen } = bridge;
  const text = `libibverbs ${version} loads`;
  const hidden = devices.filter((name) => !seen.includes(name));
  if (hidden.length > 0) {
    return { state: 'warn', text: `${text}, but has no provider for ${hidden.join(', ')}`, mend };
  }
  const what = seen.length === 0 ? 'and sees no device' : `and shows ${seen.join(', ')}`;
  return { state: 'ok', text: `${text}, ${what}` };
}

/** Opens a node as libibverbs does and closes it; the name of the errno, undefined on success. */
function openNode(path: string): string | undefined {
  try {
    closeSync(openSync(path, constants.O_RDWR));
    return undefined;
  } catch (error) {
    return failureCode(error) ?? 'EIO';
  }
}

/** Judges whether this process can open what programs open; `open` gives an errno name, or undefined. */
export function judgeNodes(
  devices: readonly RealDevice[],
  open: (path: string) => string | undefined,
): Finding {
  if (devices.length === 0) return { state: 'info', text: 'none to open: there is no real device' };
  const bare = devices.filter(({ node }) => node === undefined).map(({ name }) => name);
  if (bare.length > 0) {
    const text = `${bare.join(', ')}: no node for programs`;
    return { state: 'warn', text, mend: 'modprobe ib_uverbs' };
  }
  const names = devices.flatMap(({ node }) => node ?? []);
  const paths = [...names, CONNECTION_NODE].map((name) => `/dev/infiniband/${name}`);
  const refusals = new Map<string, string>();
  for (const path of paths) {
    const refusal = open(path);
    if (refusal !== undefined) refusals.set(path, refusal);
  }
  if (refusals.size === 0) return { state: 'ok', text: `can be opened: ${paths.join(', ')}` };
  const text = [...refusals].map(([path, code]) => `${path}: ${code}`).join(', ');
  const codes = new Set(refusals.values());
  return { state: 'warn', text, mend: nodeMend(codes, refusals.has(paths.at(-1) ?? '')) };
}

function nodeMend(codes: ReadonlySet<string>, connections: boolean): string {
  const mends = [...codes].map((code) => {
    switch (code) {
      case 'ENOENT':
        return `${connections ? 'modprobe rdma_ucm, or ' : ''}docker run --device /dev/infiniband`;
      case 'EACCES':
        return 'let your user read and write them: chmod 0666, or the udev rules of rdma-core';
      case 'EPERM':
        return 'the container forbids it: docker run --device /dev/infiniband';
      default:
        return 'load ib_uverbs and rdma_ucm anew: the nodes are left from devices that have gone';
    }
  });
  return mends.join('; ');
}

/** Judges the ports and their network; `addressed` names the interfaces that have an IP address. */
export function judgeLinks(devices: readonly RealDevice[], addressed: readonly string[]): Finding {
  if (devices.length === 0) return { state: 'info', text: 'none: there is no real device' };
  const texts: string[] = [];
  const mends: string[] = [];
  for (const { name, ports } of devices) {
    for (const { number, state, physicalState, interfaces } of ports) {
      const link = `${name}/${number}`;
      const netdev = interfaces.join(' or ');
      const over = netdev === '' ? '' : ` on ${netdev}`;
      texts.push(`${link} ${state} ${physicalState}${over}`);
      if (state !== 'ACTIVE') {
        mends.push(`${link}: ip link set ${netdev || 'its network interface'} up`);
      } else if (netdev === '') {
        mends.push(`${link}: its network interface is not in this network namespace`);
      } else if (!interfaces.some((each) => addressed.includes(each))) {
        mends.push(
          `${link}: ip addr add ADDRESS/24 dev ${netdev}, for connections find it by that`,
        );
      }
    }
  }
  const text = texts.join('; ');
  return mends.length === 0
    ? { state: 'ok', text }
    : { state: 'warn', text, mend: mends.join('; ') };
}

/** Judges the limit of locked memory in the text of /proc/self/limits. */
export function judgeMemlock(limits: string, realDevices: boolean): Finding {
  const value = /^Max locked memory\s+([0-9]+|unlimited)/m.exec(limits)?.[1];
  const limit = value === undefined || value === 'unlimited' ? undefined : Number(value);
  const size = limit === undefined ? 'unlimited' : `${limit} octets`;
  if (!realDevices) {
    return { state: 'info', text: `${size}; iwarpd locks no memory, real devices would` };
  }
  if (limit === undefined || limit >= MEMLOCK_MIN_BYTES) return { state: 'ok', text: size };
  return {
    state: 'warn',
    text: `${size}: more cannot be registered on a real device, by siw not even as root`,
    mend: 'ulimit -l unlimited, LimitMEMLOCK=infinity in a unit, docker run --ulimit memlock=-1',
  };
}

/** `4: ACTIVE` without the number. */
function withoutNumber(text: string): string {
  return text.trim().replace(/^[0-9]+: */, '');
}

/** Names in a folder, in order; none when it is not there. */
function listed(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

/** A file's text; empty when it cannot be read. */
function readText(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}
