/** A sender and a receiver of FPDUs with defaults, and a sink that remembers. */
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { FpduReceiver, type FpduReceiverOptions } from '#daemon/iwarp/engine/fpdu-receiver';
import { FpduSender, type FpduSenderOptions } from '#daemon/iwarp/engine/fpdu-sender';
import type { UlpduSink } from '#daemon/iwarp/engine/lower-layer';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { MPA_ERRORS, type ProtocolError } from '#daemon/iwarp/wire/protocol-error';
import { concat, hexOf } from './hex.ts';
import { pattern } from './pattern.ts';

/** An FPDU of the vectors. */
export interface FpduVector {
  readonly id: string;
  readonly source: string;
  readonly phase: number | null;
  readonly ulpdu: string;
  readonly bytes: string;
}

/** Keeps a copy of every ULPDU; refuses the one with index `refuseAt`. */
export class RecordingSink implements UlpduSink {
  readonly ulpdus: Uint8Array[] = [];
  readonly #refuseAt: number | undefined;

  constructor(refuseAt?: number) {
    this.#refuseAt = refuseAt;
  }

  handleUlpdu(bytes: Uint8Array, start: number, length: number): ProtocolError | undefined {
    this.ulpdus.push(bytes.slice(start, start + length));
    return this.ulpdus.length - 1 === this.#refuseAt ? MPA_ERRORS.localCatastrophic : undefined;
  }

  get hex(): string[] {
    return this.ulpdus.map(hexOf);
  }
}

/** A pool whose chunks are full of leftovers. */
export function dirtyPool(chunkBytes = 70_000): ChunkPool {
  return new ChunkPool({
    chunkBytes,
    keptMax: 4,
    allocate: (bytes) => new Uint8Array(bytes).fill(0xa5),
  });
}

export function receiverOf(options: Partial<FpduReceiverOptions> = {}): FpduReceiver {
  const defaults = { pool: dirtyPool(), crc32c, crcEnabled: true, markers: false };
  return new FpduReceiver({ ...defaults, ...options });
}

export function senderOf(options: Partial<FpduSenderOptions> = {}): FpduSender {
  return new FpduSender({ pool: dirtyPool(), crc32c, ...options });
}

/** Queues one ULPDU; false when the output is full. */
export function post(sender: FpduSender, ulpdu: Uint8Array): boolean {
  if (!sender.begin(ulpdu.length)) return false;
  sender.bytes.set(ulpdu, sender.ulpduStart);
  sender.commit();
  return true;
}

/** The whole output of the sender, taken and flushed. */
export function drain(sender: FpduSender): Uint8Array {
  const parts: Uint8Array[] = [];
  for (let part = sender.pollTransmit()?.bytes; part; part = sender.pollTransmit()?.bytes) {
    parts.push(part.slice());
    sender.flushed(part.length);
  }
  return concat(...parts);
}

/** The stream bytes of `ulpdus` from position 0 on. */
export function streamOf(
  ulpdus: readonly Uint8Array[],
  markers: boolean,
  crcEnabled = true,
): Uint8Array {
  const sender = senderOf({ highWaterBytes: Number.POSITIVE_INFINITY });
  sender.enterFullOperation(crcEnabled, markers);
  for (const ulpdu of ulpdus) post(sender, ulpdu);
  return drain(sender);
}

/**
 * ULPDUs that fill a marked stream from position 0 up to one of phase `phase`: 0, or a multiple of
 * 4 from 8 to 508. No FPDU begins at phase 4, where a leading marker ends.
 */
export function fillerTo(phase: number): Uint8Array[] {
  if (phase === 0) return [];
  if (phase === 8) return [pattern(506)];
  return [pattern(phase - 10)];
}
