/** What a daemon is started with: every option with its default, checked before anything starts. */
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';
import { z } from 'zod';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { defaultSocketPath } from '../../verbs-api/contract/ipc-admin.ts';
import type { MemoryTier } from '../../verbs-api/contract/provider.ts';
import { checkedDevices, DEFAULT_DEVICE, type DeviceConfig } from '../adapter/device-config.ts';
import type { WireDefaults } from '../cm/cm-types.ts';
import { inputFault } from '../control/input-fault.ts';
import { ALL_TIERS } from '../ipc/daemon-memory.ts';
import { type ClientQuotas, DEFAULT_QUOTAS, OBJECT_KINDS } from '../ipc/verbs/quotas.ts';
import { checkedNativeDevices, type NativeDeviceConfig } from '../native/native-config.ts';
import { DEFAULT_PROFILE, type DeviceProfile } from '../rnic/device-profile.ts';
import { type HttpConfig, httpConfig, httpOption } from './http-config.ts';

/** Levels of the log, from silent to chatty. */
export const LOG_LEVELS = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const;

const count = z.int().positive();

/** Numbers by name, every name optional: overrides of an object of limits. */
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
  })
  .partial();

const emulatedDevice = z.strictObject({
  name: z.string(),
  addresses: z.array(z.string()).readonly().default([]),
  profile: overrides(profileNames).default({}),
  wire: wire.default({}),
});

/** A device of rdma-core, `native` by its name there; its addresses are those behind it. */
const nativeDevice = z.strictObject({
  name: z.string(),
  native: z.string(),
  addresses: z.array(z.string()).readonly().default([]),
});

const device = z.union([emulatedDevice, nativeDevice]);

const quotas = z.strictObject({
  objects: overrides(OBJECT_KINDS).default({}),
  sharedBytes: count.default(DEFAULT_QUOTAS.sharedBytes),
  pinnedBytes: count.default(DEFAULT_QUOTAS.pinnedBytes),
  queueEntries: count.default(DEFAULT_QUOTAS.queueEntries),
});

const daemonConfig = z.strictObject({
  /** Default: `$IWARPD_SOCKET`, the runtime directory, or a per-user temporary one. */
  socketPath: z.string().min(1).optional(),
  /** Emulated and native ones. Without an emulated one there is one for every address. */
  devices: z.array(device).readonly().default([]),
  /**
   * Serve the native devices that rdma-core finds: those among `devices`, or all of them when there
   * are none. With false, nobody looks for any.
   */
  native: z.boolean().default(true),
  /**
   * Ways to a client's memory that may be used; shared memory always may. Default: the comma list
   * `$IWARPD_MEMORY_TIERS`, else all of them.
   */
  memoryTiers: z
    .array(z.enum(['shared', 'process_vm', 'agent']))
    .readonly()
    .optional(),
  /** Serve clients of other users; the socket is then open to everybody. */
  allowOtherUsers: z.boolean().default(false),
  quotas: quotas.default({
    objects: {},
    sharedBytes: DEFAULT_QUOTAS.sharedBytes,
    pinnedBytes: DEFAULT_QUOTAS.pinnedBytes,
    queueEntries: DEFAULT_QUOTAS.queueEntries,
  }),
  /** Answer over HTTP, too. Default: do not. */
  http: httpOption.optional(),
  /** A client that leaves more octets unread is cut off: it is stuck, and they cost memory. */
  unreadMaxBytes: count.default(4 * 2 ** 20),
  /** Connections of all clients; a client has four and one for each completion channel. */
  connectionsMax: count.default(16_384),
  greetingTimeoutMs: count.default(5_000),
  /** How long `stop` waits for connections to end before it gives up on them. */
  stopTimeoutMs: count.default(5_000),
  logLevel: z.enum(LOG_LEVELS).default('info'),
});

/** Options of a daemon as a caller or a configuration file gives them. */
export type DaemonOptions = z.input<typeof daemonConfig>;

/** Options of a daemon, complete and checked. */
export interface DaemonConfig {
  readonly socketPath: string;
  /** Emulated devices; at least one. */
  readonly devices: readonly DeviceConfig[];
  /** Native devices that were asked for; none: whatever there is. */
  readonly nativeDevices: readonly NativeDeviceConfig[];
  /** Native devices are looked for. */
  readonly native: boolean;
  readonly memoryTiers: readonly MemoryTier[];
  readonly allowOtherUsers: boolean;
  readonly quotas: ClientQuotas;
  /** Undefined: no HTTP. */
  readonly http: HttpConfig | undefined;
  readonly unreadMaxBytes: number;
  readonly connectionsMax: number;
  readonly greetingTimeoutMs: number;
  readonly stopTimeoutMs: number;
  readonly logLevel: (typeof LOG_LEVELS)[number];
}

/**
 * Checks options of any origin and fills in defaults. Throws `VerbsError` EINVAL whose text names
 * the option.
 */
export function parseDaemonConfig(
  options: unknown,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): DaemonConfig {
  const parsed = daemonConfig.safeParse(options);
  if (!parsed.success) {
    const { field, reason } = inputFault(parsed.error);
    throw new VerbsError('EINVAL', `option ${field}: ${reason}`);
  }
  const { data } = parsed;
  const named = data.socketPath ?? socketPathFor(environment);
  return {
    ...data,
    ...devicesOf(data),
    socketPath: resolve(named),
    memoryTiers: memoryTiers(data.memoryTiers, environment['IWARPD_MEMORY_TIERS']),
    http: data.http === undefined ? undefined : httpConfig(data.http, environment),
    quotas: {
      ...data.quotas,
      objects: { ...DEFAULT_QUOTAS.objects, ...given(data.quotas.objects) },
    },
  };
}

function socketPathFor(environment: Readonly<Record<string, string | undefined>>): string {
  // Of a container's user there is often no more than the number.
  const uid = process.geteuid?.() ?? 0;
  return defaultSocketPath({ environment, uid, temporaryDirectory: tmpdir() });
}

/** Emulated and native devices apart, checked against each other. */
function devicesOf(
  data: z.output<typeof daemonConfig>,
): Pick<DaemonConfig, 'devices' | 'nativeDevices'> {
  const emulated: DeviceConfig[] = [];
  const native: NativeDeviceConfig[] = [];
  for (const config of data.devices) {
    if ('native' in config) native.push(config);
    else emulated.push(deviceConfig(config));
  }
  if (native.length > 0 && !data.native) {
    throw new VerbsError('EINVAL', 'option devices: a native device, and native is false');
  }
  const devices = checkedDevices(emulated.length === 0 ? [DEFAULT_DEVICE] : emulated);
  const names = devices.map(({ name }) => name);
  return { devices, nativeDevices: checkedNativeDevices(native, names) };
}

function deviceConfig(config: z.output<typeof emulatedDevice>): DeviceConfig {
  const { name, addresses, profile } = config;
  return {
    name,
    addresses,
    profile: given(profile),
    wire: given(config.wire) as Partial<WireDefaults>,
  };
}

/** Best first, shared memory always among them. Throws EINVAL for an unknown name. */
function memoryTiers(
  chosen: readonly MemoryTier[] | undefined,
  listed: string | undefined,
): readonly MemoryTier[] {
  const names: readonly string[] =
    chosen ?? (listed === undefined || listed === '' ? ALL_TIERS : listed.split(','));
  for (const name of names) {
    if (!ALL_TIERS.some((tier) => tier === name)) {
      const known = ALL_TIERS.join(', ');
      throw new VerbsError('EINVAL', `no memory tier is called '${name}'; there are ${known}`);
    }
  }
  return ALL_TIERS.filter((tier) => tier === 'shared' || names.includes(tier));
}

/** The fields that have a value: absent and undefined mean the same in a configuration. */
function given<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as { [K in keyof T]: Exclude<T[K], undefined> };
}
