/** The daemon's options and defaults, validated before anything starts. */
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';
import { z } from 'zod';
import type { FaultSpec } from '#contract/protocol/faults';
import {
  defaultSocketPath,
  LOOPBACKS,
  type Loopback,
  NETWORKS,
  type NetworkReach,
} from '#contract/protocol/ipc-admin';
import { GREETING_TIMEOUT_MS } from '#contract/protocol/ipc-frames';
import { LOWER_LAYERS, SCTP_TRANSPORTS } from '#contract/verbs/attributes';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { MemoryTier } from '#contract/verbs/provider';
import { type DaemonLimits, SETTABLE_LIMITS } from '../clients/objects/daemon-budget.ts';
import { ALL_TIERS } from '../clients/objects/daemon-memory.ts';
import { type ClientQuotas, DEFAULT_QUOTAS, OBJECT_KINDS } from '../clients/objects/quotas.ts';
import { faultSpec } from '../control/fault-schemas.ts';
import { inputFaults } from '../control/input-fault.ts';
import { ADAPTERS, type AdapterName } from '../host/adapter-identity.ts';
import {
  checkedDevices,
  checkIsolated,
  DEFAULT_DEVICES,
  DEVICE_TRANSPORTS,
  type DeviceConfig,
} from '../host/device-config.ts';
import { FAULTS_MAX } from '../host/host-faults.ts';
import {
  NUMA_NODES_MAX,
  RAIL_RATES,
  RAILS_MAX,
  railDevices,
  SHOWN_NODES_MAX,
} from '../host/rails.ts';
import type { WireDefaults } from '../iwarp/cm/cm-types.ts';
import { checkedNativeDevices, type NativeDeviceConfig } from '../native/native-config.ts';
import { DEFAULT_PROFILE, type DeviceProfile } from '../rnic/device-profile.ts';
import { type HttpConfig, httpConfig, httpOption } from './http-config.ts';

/** Log levels, from quiet to verbose. */
export const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const;

const count = z.int().positive();

export const LOG_FORMATS = ['text', 'json'] as const;

/** Optional numbers by name: overrides for an object of limits. */
function overrides<T extends string>(names: readonly T[]) {
  return z.partialRecord(z.enum(names), count);
}

const profileNames = Object.keys(DEFAULT_PROFILE) as (keyof DeviceProfile)[];

const fpduSize = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('emss') }),
  z.strictObject({ kind: z.literal('large') }),
  z.strictObject({ kind: z.literal('fixed'), mulpduBytes: count }),
]);
const rtrKinds = z.strictObject({ send: z.boolean(), write: z.boolean(), read: z.boolean() });

const wire = z
  .strictObject({
    mpaRevision: z.literal([1, 2]),
    enhancedSupported: z.boolean(),
    crcRequested: z.boolean(),
    markersRequested: z.boolean(),
    peerToPeer: z.boolean(),
    rtrKinds,
    fpduSize,
    startupTimeoutMicros: count,
    closeTimeoutMicros: count,
    nudgeDelayMicros: count,
    keepaliveIdleMicros: z.int().nonnegative(),
    keepaliveIntervalMicros: count,
    keepaliveProbes: count,
  })
  .partial();

const emulatedDevice = z.strictObject({
  name: z.string(),
  addresses: z.array(z.string()).readonly().default([]),
  transport: z.enum(DEVICE_TRANSPORTS).default('iwarp'),
  lowerLayer: z.enum(LOWER_LAYERS).exactOptional(),
  sctpTransport: z.enum(SCTP_TRANSPORTS).exactOptional(),
  profile: overrides(profileNames).default({}),
  wire: wire.default({}),
});

/**
 * An rdma-core device, selected by its rdma-core name `native`; it uses the addresses of the
 * underlying device.
 */
const nativeDevice = z.strictObject({
  name: z.string(),
  native: z.string(),
  addresses: z.array(z.string()).readonly().default([]),
});

const device = z.union([emulatedDevice, nativeDevice]);

const ADAPTER_NAMES = Object.keys(ADAPTERS) as AdapterName[];

const rails = z.strictObject({
  count: z.int().min(1).max(RAILS_MAX),
  names: z.string().optional(),
  interfaces: z.string().optional(),
  addresses: z.array(z.string()).readonly().optional(),
  pci: z.array(z.string()).readonly().optional(),
  numa: z
    .union([
      z.int().min(1).max(SHOWN_NODES_MAX),
      z.array(z.int().min(-1).lt(NUMA_NODES_MAX)).readonly(),
    ])
    .optional(),
  rate: z.literal(RAIL_RATES).optional(),
  identity: z.enum(ADAPTER_NAMES).optional(),
});

const quotas = z.strictObject({
  objects: overrides(OBJECT_KINDS).default({}),
  sharedBytes: count.default(DEFAULT_QUOTAS.sharedBytes),
  pinnedBytes: count.default(DEFAULT_QUOTAS.pinnedBytes),
  queueEntries: count.default(DEFAULT_QUOTAS.queueEntries),
});

const daemonConfig = z.strictObject({
  /** For editors: the location of the output of `configSchema`. */
  $schema: z.string().optional(),
  /** Default: `$IWARPD_SOCKET`, the runtime directory, or a per-user temporary one. */
  socketPath: z.string().min(1).optional(),
  /**
   * Emulated and native devices. If none is emulated and there are no rails, there are `roce0` and
   * `iwarp0`, each for all addresses.
   */
  devices: z.array(device).readonly().default([]),
  /** RoCE devices that are PCI functions, before `devices`. */
  rails: rails.optional(),
  /**
   * Serve native devices found by rdma-core: those in `devices`, or all if it lists none. If false,
   * do not look for any.
   */
  native: z.boolean().default(true),
  /**
   * Allowed ways to access a client's memory; shared memory is always allowed. Default: the
   * comma-separated list `$IWARPD_MEMORY_TIERS`, else all.
   */
  memoryTiers: z
    .array(z.enum(['shared', 'process_vm', 'agent']))
    .readonly()
    .optional(),
  /**
   * How far the devices reach: other hosts and daemons, or each other only, without a socket of the
   * host.
   */
  network: z.enum(NETWORKS).default('host'),
  /** How connections within the daemon travel: through its memory, or as TCP packets on loopback. */
  loopback: z.enum(LOOPBACKS).default('memory'),
  /** Serve clients of other users; makes the socket accessible to everyone. */
  allowOtherUsers: z.boolean().default(false),
  quotas: quotas.default({
    objects: {},
    sharedBytes: DEFAULT_QUOTAS.sharedBytes,
    pinnedBytes: DEFAULT_QUOTAS.pinnedBytes,
    queueEntries: DEFAULT_QUOTAS.queueEntries,
  }),
  /** Limits of all clients together; defaults depend on the system. */
  limits: overrides(SETTABLE_LIMITS).default({}),
  /** Faults present from the start, in the form of `iwarpd fault add`. */
  faults: z.array(faultSpec).max(FAULTS_MAX).readonly().default([]),
  /** Also serve HTTP. Default: off. */
  http: httpOption.optional(),
  /** Disconnects a client that leaves more bytes unread: it is stuck and uses memory. */
  unreadMaxBytes: count.default(4 * 2 ** 20),
  /** Connections of all clients; a client has four, plus one for each completion channel. */
  connectionsMax: count.default(16_384),
  greetingTimeoutMs: count.default(GREETING_TIMEOUT_MS),
  /** How long `stop` waits for connections to end before it drops them. */
  stopTimeoutMs: count.default(5_000),
  logLevel: z.enum(LOG_LEVELS).default('info'),
  /** Default: text on a terminal, else JSON. */
  logFormat: z.enum(LOG_FORMATS).optional(),
});

/** The options as JSON Schema (draft 2020-12). */
export function configSchema(): object {
  return z.toJSONSchema(daemonConfig, { io: 'input' });
}

/** Daemon options as passed by a caller or a configuration file. */
export type DaemonConfigInput = z.input<typeof daemonConfig>;

export interface DaemonConfig {
  readonly socketPath: string;
  /** Emulated devices; at least one. */
  readonly devices: readonly DeviceConfig[];
  /** Requested native devices; empty: all that exist. */
  readonly nativeDevices: readonly NativeDeviceConfig[];
  /** Whether to look for native devices. */
  readonly native: boolean;
  readonly memoryTiers: readonly MemoryTier[];
  readonly network: NetworkReach;
  readonly loopback: Loopback;
  readonly allowOtherUsers: boolean;
  readonly quotas: ClientQuotas;
  readonly limits: Partial<DaemonLimits>;
  readonly faults: readonly FaultSpec[];
  /** Undefined: no HTTP. */
  readonly http: HttpConfig | undefined;
  readonly unreadMaxBytes: number;
  readonly connectionsMax: number;
  readonly greetingTimeoutMs: number;
  readonly stopTimeoutMs: number;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** Undefined: text on a terminal, else JSON. */
  readonly logFormat: (typeof LOG_FORMATS)[number] | undefined;
}

/**
 * Validates options from any source and applies defaults. Throws `VerbsError` EINVAL naming the
 * invalid option.
 */
export function parseDaemonConfig(
  options: unknown,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): DaemonConfig {
  const parsed = daemonConfig.safeParse(options);
  if (!parsed.success) {
    const [first, ...more] = inputFaults(parsed.error);
    const also = more.map(({ field, reason }) => `${field}: ${reason}`).join(', ');
    const reason = first?.reason ?? 'not understood';
    throw invalidOption(first?.field ?? '', also === '' ? reason : `${reason} (also ${also})`);
  }
  const { data } = parsed;
  const named = data.socketPath ?? socketPathFor(environment);
  return {
    ...data,
    ...checkedReach(data, devicesOf(data)),
    socketPath: resolve(named),
    logFormat: data.logFormat,
    memoryTiers: memoryTiers(data.memoryTiers, environment['IWARPD_MEMORY_TIERS']),
    limits: given(data.limits),
    http: data.http === undefined ? undefined : httpConfig(data.http, environment),
    quotas: {
      ...data.quotas,
      objects: { ...DEFAULT_QUOTAS.objects, ...given(data.quotas.objects) },
    },
  };
}

/** The error for an option; `fieldOf` finds the field in its text. */
export function invalidOption(field: string, reason: string): VerbsError {
  return invalid(`option ${field}: ${reason}`);
}

/** The path of the field that an error of `invalidOption` names; undefined for other errors. */
export function fieldOf(error: unknown): readonly string[] | undefined {
  if (!(error instanceof VerbsError) || error.code !== 'EINVAL') return undefined;
  return /^option ([^:]*): /.exec(error.message)?.[1]?.split('.');
}

function socketPathFor(environment: Readonly<Record<string, string | undefined>>): string {
  // A container's user often has a number but no name.
  const uid = process.geteuid?.() ?? 0;
  return defaultSocketPath({ environment, uid, temporaryDirectory: tmpdir() });
}

/** Separates emulated from native devices and checks them for conflicts. */
function devicesOf(
  data: z.output<typeof daemonConfig>,
): Pick<DaemonConfig, 'devices' | 'nativeDevices'> {
  const emulated: DeviceConfig[] = data.rails === undefined ? [] : [...railDevices(data.rails)];
  const native: NativeDeviceConfig[] = [];
  for (const config of data.devices) {
    if ('native' in config) native.push(config);
    else emulated.push(deviceConfig(config));
  }
  if (native.length > 0 && !data.native) {
    throw invalid('option devices: names a native device, but native is false');
  }
  const devices = checkedDevices(emulated.length === 0 ? DEFAULT_DEVICES : emulated);
  const names = devices.map(({ name }) => name);
  return { devices, nativeDevices: checkedNativeDevices(native, names) };
}

/** Refuses options that need the host's network on an isolated one; drops defaults that do. */
function checkedReach(
  { network, loopback, native }: z.output<typeof daemonConfig>,
  devices: ReturnType<typeof devicesOf>,
): Pick<DaemonConfig, 'devices' | 'nativeDevices' | 'native'> {
  if (network === 'host') return { ...devices, native };
  checkIsolated(devices.devices, loopback);
  const [first] = devices.nativeDevices;
  if (first === undefined) return { ...devices, native: false };
  const reason = `${first.name} is a native device, which needs network "host" (--network host)`;
  throw invalidOption('network', reason);
}

function deviceConfig(config: z.output<typeof emulatedDevice>): DeviceConfig {
  const { name, addresses, transport, lowerLayer, sctpTransport, profile } = config;
  return {
    name,
    addresses,
    transport,
    ...(lowerLayer === undefined ? {} : { lowerLayer }),
    ...(sctpTransport === undefined ? {} : { sctpTransport }),
    profile: given(profile),
    wire: given(config.wire) as Partial<WireDefaults>,
  };
}

/** Best first; always includes shared memory. Throws EINVAL for an unknown name. */
function memoryTiers(
  chosen: readonly MemoryTier[] | undefined,
  listed: string | undefined,
): readonly MemoryTier[] {
  const names: readonly string[] =
    chosen ?? (listed === undefined || listed === '' ? ALL_TIERS : listed.split(','));
  for (const name of names) {
    if (!ALL_TIERS.some((tier) => tier === name)) {
      const known = ALL_TIERS.join(', ');
      throw invalid(`unknown memory tier '${name}'; choose from ${known}`);
    }
  }
  return ALL_TIERS.filter((tier) => tier === 'shared' || names.includes(tier));
}

/** The fields with a value: in a configuration, undefined means absent. */
function given<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as { [K in keyof T]: Exclude<T[K], undefined> };
}
