/**
 * Checks for real RDMA devices, one for each link between a program and a device, so the report names
 * the missing one. Emulated devices need none of them.
 */
import { closeSync, constants, existsSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { networkInterfaces, release } from 'node:os';
import { join } from 'node:path';
import { failureCode, failureText } from '#daemon/console/failure';
import { type Check, type Finding, info, ok, warn } from './finding.ts';

/** A port of a real device, from sysfs. */
interface RealPort {
  readonly number: string;
  /** For example `ACTIVE`. */
  readonly state: string;
  /** For example `LinkUp`. */
  readonly physicalState: string;
  /** The network interfaces it may belong to; empty if sysfs does not say. */
  readonly interfaces: readonly string[];
}

/** A real device, from sysfs. */
export interface RealDevice {
  readonly name: string;
  /** `RNIC` for iWARP, `CA` for InfiniBand and RoCE. */
  readonly nodeType: string;
  readonly description: string;
  /** Name of its device node, for example `uverbs0`. */
  readonly node: string | undefined;
  readonly ports: readonly RealPort[];
}

/** `loaded` or built in; `available` to modprobe; `absent` from this kernel. */
export type ModuleState = 'loaded' | 'available' | 'absent';

/** Modules that every device needs, in order of dependency. */
const COMMON_MODULES = ['ib_core', 'ib_uverbs', 'rdma_cm', 'rdma_ucm'] as const;
/** Turns any network interface into a device. */
const SOFT_IWARP = 'siw';
/** Registered memory is locked: RDMA programs need more than a few pages. */
const MEMLOCK_MIN_BYTES = 64 * 1024 * 1024;
const CONNECTION_NODE = 'rdma_cm';

/** The checks, in the order of the report. */
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

/** The states of the RDMA modules and of siw, below `root`. */
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

/** Judges whether the kernel modules for real devices are loaded. */
export function judgeModules(modules: ReadonlyMap<string, ModuleState>): Finding {
  const inState = (wanted: ModuleState) =>
    [...modules].filter(([, state]) => state === wanted).map(([name]) => name);
  const [loaded, available, absent] = [inState('loaded'), inState('available'), inState('absent')];
  const missing = COMMON_MODULES.filter((name) => modules.get(name) !== 'loaded');
  if (missing.length === 0) {
    const text = `loaded: ${loaded.join(', ')}`;
    return available.includes(SOFT_IWARP)
      ? ok(text, `modprobe ${SOFT_IWARP} for a real device without hardware`)
      : ok(text);
  }
  // Without any module the machine has no RDMA; with only some, it is misconfigured.
  const state = loaded.length === 0 ? 'info' : 'warn';
  const lists = [
    available.length === 0 ? [] : `not loaded: ${available.join(', ')}`,
    absent.length === 0 ? [] : `not available here: ${absent.join(', ')}`,
  ];
  const fix =
    absent.length === 0
      ? `modprobe -a ${available.join(' ')}`
      : 'for real devices, boot a kernel with these modules; in a container, load them on its host';
  return { state, text: lists.flat().join('; '), fix };
}

/** The real devices in sysfs below `root`. */
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

/** Network interfaces of a port: those of the adapter, or those with the MAC address in its GID. */
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

export function judgeDevices(devices: readonly RealDevice[]): Finding {
  if (devices.length === 0) {
    return info(
      'none',
      `for a device without hardware, load the modules above and run \`rdma link add siw0 type siw netdev eth0\``,
    );
  }
  const all = devices.map(({ name, nodeType, description }) => {
    const words = [nodeType, description].filter((word) => word !== '').join(', ');
    return `${name} (${words})`;
  });
  // Emulated devices speak iWARP, so InfiniBand and RoCE devices cannot be their peers.
  const others = devices.filter(({ nodeType }) => nodeType !== 'RNIC');
  const foreign = others.length > 0 ? '; only an RNIC can connect to emulated devices' : '';
  const text = `${all.join(', ')}; programs under \`iwarpd run\` do not see them${foreign}`;
  return ok(text);
}

/** Whether the native bridge can load rdma-core, and which devices rdma-core lists. */
async function examineBridge(): Promise<Finding> {
  const devices = readRealDevices('/').map(({ name }) => name);
  try {
    const { openLibraries } = await import('#native-bridge/rdma/libraries');
    const { listDevices } = await import('#native-bridge/rdma/device-list');
    const libraries = openLibraries();
    const version = libraries.verbsFile.version ?? 'of an unknown version';
    return judgeBridge(devices, { version, seen: listDevices(libraries).map(({ name }) => name) });
  } catch (error) {
    return judgeBridge(devices, { failure: failureText(error) });
  }
}

/** Judges which of the kernel's devices the bridge lists, or why it lists none. */
export function judgeBridge(
  devices: readonly string[],
  bridge: { readonly version: string; readonly seen: readonly string[] } | { failure: string },
): Finding {
  const fix = 'apt-get install ibverbs-providers librdmacm1, or the packages of your distribution';
  if ('failure' in bridge) {
    return { state: devices.length === 0 ? 'info' : 'warn', text: bridge.failure, fix };
  }
  const { version, seen } = bridge;
  const text = `libibverbs ${version} loads`;
  const hidden = devices.filter((name) => !seen.includes(name));
  if (hidden.length > 0) return warn(`${text}, but has no provider for ${hidden.join(', ')}`, fix);
  const what = seen.length === 0 ? 'and lists no device' : `and lists ${seen.join(', ')}`;
  return ok(`${text}, ${what}`);
}

/** Opens a node as libibverbs does and closes it. Returns the errno name; undefined on success. */
function openNode(path: string): string | undefined {
  try {
    closeSync(openSync(path, constants.O_RDWR));
    return undefined;
  } catch (error) {
    return failureCode(error) ?? 'EIO';
  }
}

/** Judges whether this process can open the device nodes; `open` returns an errno name or undefined. */
export function judgeNodes(
  devices: readonly RealDevice[],
  open: (path: string) => string | undefined,
): Finding {
  if (devices.length === 0) return info('none: no real device');
  const bare = devices.filter(({ node }) => node === undefined).map(({ name }) => name);
  if (bare.length > 0) {
    const text = `${bare.join(', ')}: no device node`;
    return warn(text, 'modprobe ib_uverbs');
  }
  const names = devices.flatMap(({ node }) => node ?? []);
  const paths = [...names, CONNECTION_NODE].map((name) => `/dev/infiniband/${name}`);
  const refusals = new Map<string, string>();
  for (const path of paths) {
    const refusal = open(path);
    if (refusal !== undefined) refusals.set(path, refusal);
  }
  if (refusals.size === 0) return ok(`accessible: ${paths.join(', ')}`);
  const text = [...refusals].map(([path, code]) => `${path}: ${code}`).join(', ');
  const codes = new Set(refusals.values());
  return warn(text, nodeFix(codes, refusals.has(paths.at(-1) ?? '')));
}

function nodeFix(codes: ReadonlySet<string>, connections: boolean): string {
  const fixes = [...codes].map((code) => {
    switch (code) {
      case 'ENOENT':
        return `${connections ? 'modprobe rdma_ucm, or ' : ''}docker run --device /dev/infiniband`;
      case 'EACCES':
        return 'give your user access: chmod 0666, or install the udev rules of rdma-core';
      case 'EPERM':
        return 'the container forbids access: docker run --device /dev/infiniband';
      default:
        return 'reload ib_uverbs and rdma_ucm: the nodes belong to devices that are gone';
    }
  });
  return fixes.join('; ');
}

/** Judges the ports and their network; `addressed` are the interfaces with an IP address. */
export function judgeLinks(devices: readonly RealDevice[], addressed: readonly string[]): Finding {
  if (devices.length === 0) return info('none: no real device');
  const texts: string[] = [];
  const fixes: string[] = [];
  for (const { name, ports } of devices) {
    for (const { number, state, physicalState, interfaces } of ports) {
      const link = `${name}/${number}`;
      const netdev = interfaces.join(' or ');
      const over = netdev === '' ? '' : ` on ${netdev}`;
      texts.push(`${link} ${state} ${physicalState}${over}`);
      if (state !== 'ACTIVE') {
        fixes.push(`${link}: ip link set ${netdev || 'its network interface'} up`);
      } else if (netdev === '') {
        fixes.push(`${link}: its network interface is not in this network namespace`);
      } else if (!interfaces.some((each) => addressed.includes(each))) {
        fixes.push(
          `${link}: ip addr add ADDRESS/24 dev ${netdev}; connections are routed by address`,
        );
      }
    }
  }
  const text = texts.join('; ');
  return fixes.length === 0 ? ok(text) : warn(text, fixes.join('; '));
}

/** Judges the limit of locked memory in the text of /proc/self/limits. */
export function judgeMemlock(limits: string, realDevices: boolean): Finding {
  const value = /^Max locked memory\s+([0-9]+|unlimited)/m.exec(limits)?.[1];
  const limit = value === undefined || value === 'unlimited' ? undefined : Number(value);
  const size = limit === undefined ? 'unlimited' : `${limit} bytes`;
  if (!realDevices) return info(`${size}; only real devices lock memory`);
  if (limit === undefined || limit >= MEMLOCK_MIN_BYTES) return ok(size);
  return warn(
    `${size}: a real device cannot register more (siw: not even for root)`,
    'ulimit -l unlimited, LimitMEMLOCK=infinity in a unit, docker run --ulimit memlock=-1',
  );
}

/** `4: ACTIVE` without the number. */
function withoutNumber(text: string): string {
  return text.trim().replace(/^[0-9]+: */, '');
}

/** Names in a directory, sorted; none if it does not exist. */
export function listed(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

/** The text of a file; empty if it cannot be read. */
function readText(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}
