/**
 * The theoretical limit of one core: a daemon handles every byte three times, in the kernel's TCP, in
 * the CRC and in one copy, all in one thread. If a byte took no other time, the rate would be
 * 1 / (1/TCP + 1/CRC + 1/copy).
 */
import { type CrcEngine, chooseCrcEngine } from '../host/crc-engine.ts';
import type { Baseline } from './measurement.ts';
import { WRITE_WINDOW_BYTES } from './verbs-traffic.ts';

/** An FPDU on loopback, where segments have about 64 KiB. */
const FPDU_BYTES = 65_536;
/** Bytes of a round: a tenth of a second at most, if native code computes CRCs. */
const ROUND_BYTES = 256 << 20;

let engine: CrcEngine | undefined;

/**
 * The baselines of the limit: CRC only, copy only, and the limit; `aim` is the share of it to
 * reach. They follow raw TCP, the first baseline of their measurement.
 */
export function oneCoreBaselines(aim: number): readonly Baseline[] {
  return [
    { title: 'CRC32C of every byte', run: async (_, scale) => crcRate(scale) },
    { title: 'one copy of every byte', run: async (_, scale) => copyRate(scale) },
    {
      title: 'one core: TCP, CRC and copy',
      run: async (_rig, _scale, rates) => limitOf(rates),
      aim,
    },
  ];
}

/** The rate if every byte takes all of these steps in turn. */
function limitOf(rates: readonly number[]): number {
  return 1 / rates.reduce((sum, rate) => sum + 1 / rate, 0);
}

/** MB/s of the engine that daemons choose on this machine. */
function crcRate(scale: number): number {
  engine ??= chooseCrcEngine();
  const { crc32c } = engine;
  const { bytes, parts } = windowParts();
  let all = 0;
  const seconds = timed(scale, parts.length, (index) => {
    all ^= crc32c(parts[index] ?? bytes);
  });
  if (!Number.isInteger(all)) throw new Error('the CRC engine computed nothing');
  return seconds;
}

function copyRate(scale: number): number {
  const { bytes, parts } = windowParts();
  const target = new Uint8Array(WRITE_WINDOW_BYTES);
  return timed(scale, parts.length, (index) => {
    target.set(parts[index] ?? bytes, index * FPDU_BYTES);
  });
}

/** The bytes that successive writes use, split into FPDUs. */
function windowParts(): { bytes: Uint8Array; parts: readonly Uint8Array[] } {
  const bytes = new Uint8Array(WRITE_WINDOW_BYTES).fill(0x5a);
  const count = WRITE_WINDOW_BYTES / FPDU_BYTES;
  const parts = Array.from({ length: count }, (_, index) =>
    bytes.subarray(index * FPDU_BYTES, (index + 1) * FPDU_BYTES),
  );
  return { bytes, parts };
}

/** MB/s of `handle`, called for the parts of the window in turn. */
function timed(scale: number, parts: number, handle: (index: number) => void): number {
  const count = Math.max(parts, Math.round((ROUND_BYTES * scale) / FPDU_BYTES));
  for (let part = 0; part < parts; part++) handle(part);
  const start = performance.now();
  for (let done = 0; done < count; done++) handle(done % parts);
  return (count * FPDU_BYTES) / (performance.now() - start) / 1000;
}
