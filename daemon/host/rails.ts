/**
 * Rails: several RoCE devices of one host, each a PCI function with a network interface of its own.
 * Function and interface exist only in what programs of the daemon see.
 */
import { invalid } from '#contract/verbs/errors';
import {
  ADAPTERS,
  type AdapterIdentity,
  type AdapterName,
  IWARPD_IDENTITY,
} from './adapter-identity.ts';

/** The kernel numbers 64 devices; the preload library opens no others. */
export const RAILS_MAX = 64;

/** NUMA nodes end here in the kernel (`MAX_NUMNODES`). */
export const NUMA_NODES_MAX = 1024;
/** Nodes that the daemon shows instead of the machine's: as many as the largest servers have. */
export const SHOWN_NODES_MAX = 16;

/** Interface names that the kernel accepts have at most this many bytes (`IFNAMSIZ`, less its 0). */
const INTERFACE_NAME_MAX = 15;

/** Without configuration, rails are in a PCI domain that firmware does not give to devices. */
const PCI_DOMAIN = '1000';

/** The rate of a link. */
interface LinkRate {
  /** Gigabits per second. */
  readonly gbps: number;
  /** As `enum ib_port_speed`. */
  readonly speed: number;
  /** As `enum ib_port_width`. */
  readonly width: number;
  /** The file `rate` of sysfs. */
  readonly text: string;
}

/** A link of other devices: one lane of 2.5 Gb/s, since it has no rate. */
export const NO_RATE: LinkRate = { gbps: 2.5, speed: 1, width: 1, text: '2.5 Gb/sec (1X SDR)' };

/** Rates of rails by Gb/s. */
const RATES: ReadonlyMap<number, LinkRate> = new Map([
  [10, { gbps: 10, speed: 4, width: 1, text: '10 Gb/sec (1X QDR)' }],
  [25, { gbps: 25, speed: 32, width: 1, text: '25 Gb/sec (1X EDR)' }],
  [40, { gbps: 40, speed: 4, width: 2, text: '40 Gb/sec (4X QDR)' }],
  [50, { gbps: 50, speed: 64, width: 1, text: '50 Gb/sec (1X HDR)' }],
  [100, { gbps: 100, speed: 32, width: 2, text: '100 Gb/sec (4X EDR)' }],
  [200, { gbps: 200, speed: 64, width: 2, text: '200 Gb/sec (4X HDR)' }],
  [400, { gbps: 400, speed: 128, width: 2, text: '400 Gb/sec (4X NDR)' }],
]);

/** Rates that rails may have, in Gb/s. */
export const RAIL_RATES: readonly number[] = [...RATES.keys()];

/**
 * Rates at which programs take a link for a fast one. Linux's rxe reports 2.5 Gb/s, which NCCL and UCX
 * take for a slow network.
 */
const DEFAULT_RATE = 100;

/** Rails as configured; each list has one entry for each rail. */
export interface RailsOptions {
  readonly count: number;
  /** Names of devices and of interfaces; `%d` stands for the number of the rail. */
  readonly names?: string | undefined;
  readonly interfaces?: string | undefined;
  readonly addresses?: readonly string[] | undefined;
  /** Addresses of PCI functions. */
  readonly pci?: readonly string[] | undefined;
  /** NUMA nodes; -1 is none. Or the number of nodes that programs see instead of the machine's. */
  readonly numa?: number | readonly number[] | undefined;
  /** In Gb/s, one of `RAIL_RATES`. */
  readonly rate?: number | undefined;
  readonly identity?: AdapterName | undefined;
}

/** The place of a device that is a rail. */
export interface Rail {
  /** DOMAIN:BUS:DEVICE.FUNCTION, in lower case. */
  readonly pciAddress: string;
  /** Undefined spreads the rails over the nodes of the machine. */
  readonly numaNode: number | undefined;
  /** How many NUMA nodes programs see, with the machine's processors; undefined: those of the machine. */
  readonly shownNodes: number | undefined;
  /** Shown as its network interface, which the machine does not have. */
  readonly interfaceName: string;
  /** The rate that the port reports. */
  readonly rate: LinkRate;
  /** The adapter that it says it is. */
  readonly identity: AdapterIdentity;
}

/** A RoCE device that is a rail. */
interface RailDevice {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly transport: 'roce';
  readonly rail: Rail;
}

/**
 * The devices of these rails, not yet checked as devices are. Throws `VerbsError` EINVAL that begins with the
 * name of the wrong option.
 */
export function railDevices(options: RailsOptions): readonly RailDevice[] {
  const { count, addresses, pci, identity } = options;
  const shownNodes = typeof options.numa === 'number' ? options.numa : undefined;
  const numa = typeof options.numa === 'number' ? spreadOver(options.numa, count) : options.numa;
  for (const [name, list] of Object.entries({ addresses, pci, numa })) {
    if (list !== undefined && list.length !== count) {
      throw railsFault(name, `has ${list.length} entries for ${count} rails`);
    }
  }
  const names = numbered(
    'names',
    options.names ?? (identity === undefined ? 'roce%d' : 'mlx5_%d'),
    count,
  );
  const interfaces = numbered('interfaces', options.interfaces ?? 'rail%d', count);
  for (const name of interfaces) checkInterfaceName(name);
  const functions = (pci ?? defaultFunctions(count)).map(pciAddress);
  checkDistinct('pci', functions);
  const rate = RATES.get(options.rate ?? DEFAULT_RATE);
  if (rate === undefined) throw railsFault('rate', `must be one of ${RAIL_RATES.join(', ')}`);
  return names.map((name, index) => ({
    name,
    addresses: [addresses?.[index] ?? `127.0.0.${index + 1}`],
    transport: 'roce',
    rail: {
      pciAddress: functions[index] as string,
      numaNode: numa?.[index],
      shownNodes,
      interfaceName: interfaces[index] as string,
      rate,
      identity: identity === undefined ? IWARPD_IDENTITY : ADAPTERS[identity],
    },
  }));
}

/** A node for each rail: neighbours share one. */
function spreadOver(nodes: number, rails: number): readonly number[] {
  return Array.from({ length: rails }, (_, index) => Math.floor((index * nodes) / rails));
}

/** `pattern` with each number in place of its `%d`. */
function numbered(field: string, pattern: string, count: number): readonly string[] {
  const parts = pattern.split('%d');
  if (parts.length !== 2) throw railsFault(field, `must contain %d once, the number of the rail`);
  return Array.from({ length: count }, (_, index) => parts.join(String(index)));
}

function checkInterfaceName(name: string): void {
  if (/^[\w.-]+$/.test(name) && !/^\.+$/.test(name) && name.length <= INTERFACE_NAME_MAX) return;
  const allowed = `1 to ${INTERFACE_NAME_MAX} letters, digits, or any of . _ -`;
  throw railsFault('interfaces', `'${name}' is no name of an interface: use ${allowed}`);
}

/** A bus for each, so each has a root of its own, and so a NUMA node. */
function defaultFunctions(count: number): readonly string[] {
  return Array.from({ length: count }, (_, index) => {
    return `${PCI_DOMAIN}:${(index + 1).toString(16).padStart(2, '0')}:00.0`;
  });
}

function pciAddress(text: string): string {
  if (/^[\da-f]{4}:[\da-f]{2}:[01][\da-f]\.[0-7]$/i.test(text)) return text.toLowerCase();
  throw railsFault('pci', `'${text}' is no PCI address; write one like 0000:3b:00.0`);
}

function checkDistinct(field: string, values: readonly string[]): void {
  const twice = values.find((value, index) => values.indexOf(value) !== index);
  if (twice !== undefined) throw railsFault(field, `two rails have ${twice}`);
}

function railsFault(field: string, reason: string): Error {
  return invalid(`option rails.${field}: ${reason}`);
}
