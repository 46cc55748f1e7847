/** SCTP as the carrier of iWARP devices: one network for all of them. */
import { isErrnoCode, VerbsError } from '#contract/verbs/errors';
import type { CmDevice } from '#daemon/iwarp/cm/cm-types';
import type { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import type { LowerLayer } from '#daemon/iwarp/engine/lower-layer';
import type { StreamOptions } from '#daemon/iwarp/engine/stream-api';
import type { FrameReader } from '#daemon/iwarp/faults/frame';
import { SctpFrameReader } from '#daemon/iwarp/faults/sctp-frame-reader';
import { DDP_ADAPTATION, SctpLayer } from '#daemon/iwarp/sctp/sctp-layer';
import { NetworkError } from '../links/network.ts';
import type { CarrierModule, CarrierOptions, StreamCarrier } from '../stream-carrier.ts';
import { DeviceTransports } from './device-transports.ts';
import { MemoryDatagrams } from './memory-datagrams.ts';
import { type PacketTransport, SctpNetwork, type TransportMaker } from './sctp-network.ts';

class SctpCarrier implements StreamCarrier {
  readonly lowerLayer = 'sctp';
  readonly network: SctpNetwork;
  readonly #pool: ChunkPool;

  /** Throws `VerbsError` if a device cannot have its UDP port, or the library is missing. */
  constructor(makeTransport: TransportMaker, options: CarrierOptions) {
    const { system, inner, devices, pool, tap } = options;
    this.#pool = pool;
    const own = devices.filter(({ cmDevice }) => cmDevice.lowerLayer === 'sctp');
    const described = own.map(({ name, cmDevice, kind }) => {
      const { sctpTransport: sctp = 'usrsctp' } = kind.choice;
      return { name, addresses: cmDevice.addresses, sctp };
    });
    const { clock, isolated } = system;
    try {
      const transport: PacketTransport = makeTransport(clock, described, isolated);
      const hasTcp = devices.length > own.length;
      this.network = new SctpNetwork({ inner, transport, clock, devices: described, hasTcp, tap });
    } catch (error) {
      if (!(error instanceof NetworkError)) throw error;
      const names = own.map(({ name }) => name).join(', ');
      const code = isErrnoCode(error.code) ? error.code : 'EOPNOTSUPP';
      throw new VerbsError(code, `no SCTP for ${names}: ${error.message}`);
    }
  }

  makeLayer(_device: CmDevice, options: StreamOptions): LowerLayer {
    // Associations with another indication have been aborted.
    return new SctpLayer(options, { pool: this.#pool, peerAdaptation: DDP_ADAPTATION });
  }

  makeFrameReader(): FrameReader {
    return new SctpFrameReader();
  }

  get associations(): SctpNetwork {
    return this.network;
  }
}

/** SCTP over a transport that the caller provides, as simulations do. */
export function sctpCarrier(makeTransport: TransportMaker): CarrierModule {
  return { lowerLayer: 'sctp', make: (options) => new SctpCarrier(makeTransport, options) };
}

/** SCTP by libusrsctp and the kernel. */
export const SCTP: CarrierModule = sctpCarrier((clock, devices, isolated = false) => {
  return new DeviceTransports(clock, devices, isolated ? new MemoryDatagrams(clock) : undefined);
});
