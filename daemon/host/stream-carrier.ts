/** Carriers of iWARP connections: one for each lower layer. */
import type { DeviceLowerLayer } from '#contract/verbs/attributes';
import type { Fault } from '../faults/fault.ts';
import type { CmDevice } from '../iwarp/cm/cm-types.ts';
import type { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { LowerLayer } from '../iwarp/engine/lower-layer.ts';
import { MpaLayer } from '../iwarp/engine/mpa-layer.ts';
import type { StreamOptions } from '../iwarp/engine/stream-api.ts';
import { type FrameReader, TcpFrameReader } from '../iwarp/faults/frame.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Conduit } from './conduit.ts';
import type { Network } from './links/network.ts';

export interface StreamCarrier {
  readonly lowerLayer: DeviceLowerLayer;
  /** Has the ports of its devices' addresses, and the inner network's for all others. */
  readonly network: Network;
  /** The lower layer of a new stream. */
  makeLayer(device: CmDevice, options: StreamOptions): LowerLayer;
  /** Finds frames in the output of a connection, for faults. */
  makeFrameReader(conduit: Conduit): FrameReader;
  /** Undefined if the system has the connections and their packets. */
  readonly associations?: Associations;
}

/** Connections of a lower layer, which streams share and outlive. */
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

/** TCP, whose packets belong to the system. */
export class TcpCarrier implements StreamCarrier {
  readonly lowerLayer = 'tcp';
  readonly network: Network;
  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;

  constructor(network: Network, pool: ChunkPool, crc32c: Crc32c) {
    this.network = network;
    this.#pool = pool;
    this.#crc32c = crc32c;
  }

  makeLayer({ wire }: CmDevice, options: StreamOptions): LowerLayer {
    return new MpaLayer(options, {
      pool: this.#pool,
      crc32c: this.#crc32c,
      alignSegments: wire.segmentAligned,
    });
  }

  makeFrameReader({ output }: Conduit): FrameReader {
    return new TcpFrameReader(output.sentBytes, output.startupBytes);
  }
}
