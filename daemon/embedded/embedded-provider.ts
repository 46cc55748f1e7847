/** Emulated RNICs inside the calling process: the verbs API without a daemon. */
import { DeviceProvider } from '../../verbs-api/client/device-provider.ts';
import type { FaultControl, FaultSpec, FaultStatus } from '../../verbs-api/contract/faults.ts';
import type { Provider } from '../../verbs-api/contract/provider.ts';
import type { CrcEngine } from '../adapter/crc-engine.ts';
import { DEFAULT_DEVICE, type DeviceConfig } from '../adapter/device-config.ts';
import type { HostObserver } from '../adapter/observer.ts';
import { RnicHost } from '../adapter/rnic-host.ts';
import type { CmLimits, WireDefaults } from '../cm/cm-types.ts';
import { EmbeddedFaults } from './embedded-faults.ts';
import { EmbeddedLink } from './embedded-link.ts';

export type { FaultControl, FaultSpec, FaultStatus };

/** Options of `createEmbedded`. */
export interface EmbeddedOptions {
  /** Default: one device, `iwarp0`, that answers for every address of the host. */
  readonly devices?: readonly DeviceConfig[];
  /** Wire choices of every device that does not make its own. */
  readonly wire?: Partial<WireDefaults>;
  /** Sees notices and, with a tap, the octets of every connection. */
  readonly observer?: HostObserver;
  /** Bounds of the connection manager. */
  readonly limits?: Partial<CmLimits>;
  /** Implementation of CRC32C. Default: the best of those installed. */
  readonly crcEngine?: CrcEngine;
}

/**
 * A provider whose devices can be told to go wrong: `withFault` of `iwarpd/testing` takes it, too.
 * Where the provider is closed, its faults are over.
 */
export interface EmbeddedProvider extends Provider, FaultControl {}

class EmbeddedDeviceProvider extends DeviceProvider implements EmbeddedProvider {
  readonly #host: RnicHost;
  readonly #faults: EmbeddedFaults;

  constructor(host: RnicHost) {
    super(new EmbeddedLink(host));
    this.#host = host;
    this.#faults = new EmbeddedFaults(host, () => this.assertUsable());
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
    // First, since a fault may hold connections back that are to end.
    this.#host.faults.clear();
    await super.destroy();
  }
}

/**
 * Makes emulated RNICs in this process and returns them as a provider.
 *
 * They speak iWARP over TCP sockets of this process, with any peer: a daemon, another embedded
 * provider, or an RNIC. Memory is reached directly; nothing crosses a process boundary. Rejects
 * with `VerbsError` EINVAL for bad names or addresses of devices. Closing the provider closes every
 * connection and socket.
 */
export async function createEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedProvider> {
  const { devices = [DEFAULT_DEVICE], wire, ...hostOptions } = options;
  const host = new RnicHost({
    ...hostOptions,
    devices: devices.map((device) => ({ ...device, wire: { ...wire, ...device.wire } })),
  });
  return new EmbeddedDeviceProvider(host);
}
