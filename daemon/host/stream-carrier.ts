/** Carriers of iWARP connections, one for each lower layer. */
import type {
  DeviceLowerLayer,
  DeviceTransport,
  SctpTransportKind,
} from '#contract/verbs/attributes';
import type { PacketTap } from '../capture/capture-tap.ts';
import type { Fault } from '../faults/fault.ts';
import type { CmDevice } from '../iwarp/cm/cm-types.ts';
import type { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { LowerLayer } from '../iwarp/engine/lower-layer.ts';
import type { StreamOptions } from '../iwarp/engine/stream-api.ts';
import type { FrameReader } from '../iwarp/faults/frame.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Conduit } from './conduit.ts';
import type { HostSystem, Network } from './links/network.ts';

export interface StreamCarrier {
  readonly lowerLayer: DeviceLowerLayer;
  /** Serves the addresses of its devices, and passes all others to the inner network. */
  readonly network: Network;
  /** The lower layer of a new stream. */
  makeLayer(device: CmDevice, options: StreamOptions): LowerLayer;
  /** Finds frames in the output of a connection, for faults. */
  makeFrameReader(conduit: Conduit): FrameReader;
  /** Undefined if the operating system manages connections and packets. */
  readonly associations?: Associations;
}

/** Connections of a lower layer. Streams may share one, and it may outlive them. */
export interface Associations {
  /** Installs the faults of their packets. */
  setFaults(faults: readonly Fault[] | undefined): void;
  /** How many there are, including those without a stream. */
  readonly associationCount: number;
  /** Releases those kept for future listeners of `keeper`. */
  forget(keeper: object): void;
  /** Ends those without a stream; resolves when all have ended, or the time is up. */
  leave(): Promise<void>;
  /** Closes their sockets. */
  close(): void;
}

/** The part of a device's configuration that chooses its kind, and so its carrier. */
export interface KindChoice {
  /** Default: iWARP. */
  readonly transport?: DeviceTransport;
  /** Lower layer of an iWARP device, below DDP. Default: TCP. */
  readonly lowerLayer?: DeviceLowerLayer;
  /** The SCTP implementation, for `lowerLayer` SCTP. Default: libusrsctp. */
  readonly sctpTransport?: SctpTransportKind;
}

/** A device as its carrier sees it. */
interface CarriedDevice {
  readonly name: string;
  readonly kind: { readonly choice: KindChoice };
  readonly cmDevice: CmDevice;
}

/** Options of a carrier, from its host. */
export interface CarrierOptions {
  readonly system: HostSystem;
  /** The network of all other devices. */
  readonly inner: Network;
  /** All iWARP devices of the host. */
  readonly devices: readonly CarriedDevice[];
  /** Buffers of its connections. */
  readonly pool: ChunkPool;
  readonly crc32c: Crc32c;
  /** Captures packets that the carrier makes itself. */
  readonly tap: PacketTap | undefined;
}

/** A carrier that a host makes for its devices of one lower layer. */
export interface CarrierModule {
  readonly lowerLayer: DeviceLowerLayer;
  /** Throws `VerbsError` if this machine lacks what the devices need. */
  make(options: CarrierOptions): StreamCarrier;
}
