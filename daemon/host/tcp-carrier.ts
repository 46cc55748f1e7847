/** TCP as the carrier of iWARP devices; its packets belong to the system. */

import type { DeviceLowerLayer } from '#contract/verbs/attributes';
import type { CmDevice } from '../iwarp/cm/cm-types.ts';
import type { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { LowerLayer } from '../iwarp/engine/lower-layer.ts';
import { MpaLayer } from '../iwarp/engine/mpa-layer.ts';
import type { StreamOptions } from '../iwarp/engine/stream-api.ts';
import { type FrameReader, TcpFrameReader } from '../iwarp/faults/frame.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Conduit } from './conduit.ts';
import type { Network } from './links/network.ts';
import type { CarrierOptions, StreamCarrier } from './stream-carrier.ts';

export class TcpCarrier implements StreamCarrier {
  readonly lowerLayer: DeviceLowerLayer = 'tcp';
  readonly network: Network;
  readonly #pool: ChunkPool;
  readonly #crc32c: Crc32c;

  constructor({ inner, pool, crc32c }: CarrierOptions) {
    this.network = inner;
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
