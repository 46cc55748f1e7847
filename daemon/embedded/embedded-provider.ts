/** Emulated RNICs inside the calling process: the verbs API without a daemon. */
import { FAULT_SPEC } from '#contract/protocol/fault-argument';
import type { FaultControl, FaultSpec, FaultStatus } from '#contract/protocol/faults';
import {
  LOOPBACKS,
  type Loopback,
  NETWORKS,
  type NetworkReach,
} from '#contract/protocol/ipc-admin';
import {
  FLAG,
  FUNCTION,
  fields,
  kind,
  listOf,
  NUMBER,
  OBJECT,
  oneOf,
  optional,
  options,
  partOf,
  TEXT,
  takes,
  wholeNumber,
} from '#contract/verbs/arguments';
import { LOWER_LAYERS, SCTP_TRANSPORTS } from '#contract/verbs/attributes';
import type { Provider } from '#contract/verbs/provider';
import { DeviceProvider } from '#verbs-api/client/device-provider';
import type { CrcEngine } from '../host/crc-engine.ts';
import {
  checkIsolated,
  DEFAULT_DEVICE,
  DEVICE_TRANSPORTS,
  type DeviceConfig,
} from '../host/device-config.ts';
import { loadCarriers } from '../host/device-kinds.ts';
import { hostSystem, isolatedSystem } from '../host/links/system.ts';
import type { HostObserver } from '../host/observer.ts';
import { RnicHost } from '../host/rnic-host.ts';
import { AddressWatch } from '../host/roce/address-watch.ts';
import { type CmLimits, DEFAULT_CM_LIMITS, type WireDefaults } from '../iwarp/cm/cm-types.ts';
import { DEFAULT_PROFILE } from '../rnic/device-profile.ts';
import { EmbeddedChannel } from './embedded-channel.ts';
import { EmbeddedFaults } from './embedded-faults.ts';

export type { FaultControl, FaultSpec, FaultStatus };

/** A device of `createEmbedded`. */
export interface EmbeddedDevice extends Omit<DeviceConfig, 'addresses' | 'rail'> {
  /**
   * Addresses of the device. If empty or omitted: every address of the host that no other device has.
   * A device over SCTP needs some.
   */
  readonly addresses?: readonly string[] | undefined;
}

/** Options of `createEmbedded`. */
export interface EmbeddedOptions {
  /** Default: one device, `iwarp0`, that answers for every address of the host. */
  readonly devices?: readonly EmbeddedDevice[];
  /** Wire options of every iWARP device that does not set its own. */
  readonly wire?: Partial<WireDefaults>;
  /** Receives notices and, with a tap, the bytes of every connection. */
  readonly observer?: HostObserver;
  /** Limits of the connection manager. */
  readonly limits?: Partial<CmLimits>;
  /**
   * How far the devices reach: other hosts, daemons and providers, through sockets (`host`, the
   * default), or each other only, without sockets (`isolated`): tests then never interfere, whatever
   * their ports.
   */
  readonly network?: NetworkReach;
  /**
   * Connections between devices of this provider: through memory (default), or as TCP packets on
   * loopback.
   */
  readonly loopback?: Loopback;
  /** Implementation of CRC32C. Default: the best of those installed. */
  readonly crcEngine?: CrcEngine;
}

const SOME = optional(NUMBER);
const SOME_FLAG = optional(FLAG);
const FPDU_SIZE = kind(
  "{ kind: 'emss' }, { kind: 'large' } or { kind: 'fixed', mulpduBytes: a number }",
  isFpduSize,
);
const WIRE = options<Partial<WireDefaults>>({
  mpaRevision: optional(oneOf([1, 2])),
  enhancedSupported: SOME_FLAG,
  crcRequested: SOME_FLAG,
  markersRequested: SOME_FLAG,
  peerToPeer: SOME_FLAG,
  rtrKinds: optional(options<WireDefaults['rtrKinds']>({ send: FLAG, write: FLAG, read: FLAG })),
  fpduSize: optional(FPDU_SIZE),
  segmentAligned: SOME_FLAG,
  startupTimeoutMicros: SOME,
  closeTimeoutMicros: SOME,
  nudgeDelayMicros: SOME,
  keepaliveIdleMicros: SOME,
  keepaliveIntervalMicros: SOME,
  keepaliveProbes: SOME,
});

function isFpduSize(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || !('kind' in value)) return false;
  if (value.kind === 'emss' || value.kind === 'large') return true;
  return (
    value.kind === 'fixed' && 'mulpduBytes' in value && Number.isSafeInteger(value.mulpduBytes)
  );
}

const check = takes('createEmbedded', {
  options: optional(
    options<EmbeddedOptions>({
      devices: optional(
        listOf(
          options<EmbeddedDevice>({
            name: TEXT,
            addresses: optional(listOf(TEXT)),
            transport: optional(oneOf(DEVICE_TRANSPORTS)),
            lowerLayer: optional(oneOf(LOWER_LAYERS)),
            sctpTransport: optional(oneOf(SCTP_TRANSPORTS)),
            profile: optional(partOf(DEFAULT_PROFILE)),
            wire: optional(WIRE),
          }),
        ),
      ),
      wire: optional(WIRE),
      observer: optional(OBJECT),
      limits: optional(partOf(DEFAULT_CM_LIMITS)),
      loopback: optional(oneOf(LOOPBACKS)),
      network: optional(oneOf(NETWORKS)),
      crcEngine: optional(fields<CrcEngine>({ name: TEXT, accelerated: FLAG, crc32c: FUNCTION })),
    }),
  ),
});
const checkFaults = {
  addFault: takes('addFault', { spec: FAULT_SPEC }),
  removeFault: takes('removeFault', { id: wholeNumber(0) }),
} as const;

/**
 * A provider with fault injection, also by `withFault` of `iwarpd/testing`. Closing the provider
 * removes its faults.
 */
export interface EmbeddedProvider extends Provider, FaultControl {}

class EmbeddedDeviceProvider extends DeviceProvider implements EmbeddedProvider {
  readonly #host: RnicHost;
  readonly #faults: EmbeddedFaults;
  readonly #addressWatch: AddressWatch;

  constructor(host: RnicHost) {
    super(new EmbeddedChannel(host));
    this.#host = host;
    this.#faults = new EmbeddedFaults(host, () => this.assertUsable());
    this.#addressWatch = new AddressWatch(host);
  }

  async addFault(spec: FaultSpec): Promise<FaultStatus> {
    checkFaults.addFault(spec);
    return await this.#faults.addFault(spec);
  }

  faults(): Promise<readonly FaultStatus[]> {
    return this.#faults.faults();
  }

  async removeFault(id: number): Promise<FaultStatus> {
    checkFaults.removeFault(id);
    return await this.#faults.removeFault(id);
  }

  removeFaults(): Promise<readonly FaultStatus[]> {
    return this.#faults.removeFaults();
  }

  protected override async destroy(): Promise<void> {
    // First, since a fault may hold back connections that must end.
    this.#host.faults.clear();
    this.#addressWatch.close();
    await super.destroy();
  }
}

/**
 * Creates emulated RNICs in this process and returns them as a provider.
 *
 * They speak iWARP over TCP or SCTP sockets of this process, with any peer: a daemon, another embedded
 * provider, or an RNIC; with `network: 'isolated'` only with each other. Memory is accessed directly,
 * within the process. Rejects with `VerbsError` EINVAL for bad names or addresses of devices. Closing
 * the provider closes every connection and socket.
 */
export async function createEmbedded(given: EmbeddedOptions = {}): Promise<EmbeddedProvider> {
  check(given);
  const { devices: wanted = [DEFAULT_DEVICE], wire, network = 'host', ...rest } = given;
  const devices = wanted.map((device) => ({ ...device, addresses: device.addresses ?? [] }));
  const { loopback = 'memory', ...hostOptions } = rest;
  const isolated = network === 'isolated';
  if (isolated) checkIsolated(devices, loopback);
  const hasRoce = devices.some(({ transport }) => transport === 'roce');
  const host = new RnicHost({
    ...hostOptions,
    roce: hasRoce ? (await import('../host/roce/roce-network.ts')).ROCE_NETWORK : undefined,
    carriers: await loadCarriers(devices),
    system: isolated ? isolatedSystem(devices) : hostSystem(loopback),
    devices: devices.map((device) => {
      return device.transport === 'roce'
        ? device
        : { ...device, wire: { ...wire, ...device.wire } };
    }),
  });
  return new EmbeddedDeviceProvider(host);
}
