/** Emulated RNICs inside the calling process: the verbs API without a daemon. */
import { DeviceProvider } from '../../verbs-api/client/device-provider.ts';
import type {
  FaultControl,
  FaultSpec,
  FaultStatus,
} from '../../verbs-api/contract/protocol/faults.ts';
import type { Loopback, NetworkReach } from '../../verbs-api/contract/protocol/ipc-admin.ts';
import type { Provider } from '../../verbs-api/contract/verbs/provider.ts';
import type { CrcEngine } from '../host/crc-engine.ts';
import { checkIsolated, DEFAULT_DEVICE, type DeviceConfig } from '../host/device-config.ts';
import { hostSystem, isolatedSystem } from '../host/links/system.ts';
import type { HostObserver } from '../host/observer.ts';
import { RnicHost } from '../host/rnic-host.ts';
import { AddressWatch } from '../host/roce/address-watch.ts';
import type { CmLimits, WireDefaults } from '../iwarp/cm/cm-types.ts';
import { EmbeddedChannel } from './embedded-channel.ts';
import { EmbeddedFaults } from './embedded-faults.ts';

export type { FaultControl, FaultSpec, FaultStatus };

/** Options of `createEmbedded`. */
export interface EmbeddedOptions {
  /** Default: one device, `iwarp0`, that answers for every address of the host. */
  readonly devices?: readonly DeviceConfig[];
  /** Wire options of every iWARP device that does not set its own. */
  readonly wire?: Partial<WireDefaults>;
  /** Sees notices and, with a tap, the bytes of every connection. */
  readonly observer?: HostObserver;
  /** Limits of the connection manager. */
  readonly limits?: Partial<CmLimits>;
  /**
   * How far the devices reach: other hosts, daemons and providers, by sockets (`host`, the default), or
   * each other only, without a socket (`isolated`): for tests, which then never meet, whatever
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

  addFault(spec: FaultSpec): Promise<FaultStatus> {
    return this.#faults.addFault(spec);
  }

  faults(): Promise<readonly FaultStatus[]> {
    return this.#faults.faults();
  }

  removeFault(id: number): Promise<FaultStatus> {
    return this.#faults.removeFault(id);
  }

  removeFaults(): Promise<readonly FaultStatus[]> {
    return this.#faults.removeFaults();
  }

  protected override async destroy(): Promise<void> {
    // First, since a fault may hold back connections that are to end.
    this.#host.faults.clear();
    this.#addressWatch.close();
    await super.destroy();
  }
}

/**
 * Creates emulated RNICs in this process and returns them as a provider.
 *
 * They speak iWARP over TCP or SCTP sockets of this process, with any peer: a daemon, another embedded
 * provider, or an RNIC; with `network: 'isolated'` with each other only. Memory is accessed directly,
 * within one process. Rejects with `VerbsError`
 * EINVAL for bad names or addresses of devices. Closing the provider closes every connection and
 * socket.
 */
export async function createEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedProvider> {
  const { devices = [DEFAULT_DEVICE], wire, network = 'host', ...rest } = options;
  const { loopback = 'memory', ...hostOptions } = rest;
  const isolated = network === 'isolated';
  if (isolated) checkIsolated(devices, loopback);
  const hasRoce = devices.some(({ transport }) => transport === 'roce');
  const hasSctp = devices.some(({ lowerLayer }) => lowerLayer === 'sctp');
  const host = new RnicHost({
    ...hostOptions,
    roce: hasRoce ? (await import('../host/roce/roce-parts.ts')).ROCE_PARTS : undefined,
    sctp: hasSctp ? (await import('../host/sctp/sctp-parts.ts')).SCTP_PARTS : undefined,
    system: isolated ? isolatedSystem(devices) : hostSystem(loopback),
    devices: devices.map((device) => {
      return device.transport === 'roce'
        ? device
        : { ...device, wire: { ...wire, ...device.wire } };
    }),
  });
  return new EmbeddedDeviceProvider(host);
}
