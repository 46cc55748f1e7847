import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import type { FaultSpec } from '#contract/protocol/faults';
import { Fault } from '#daemon/faults/fault';
import { TcpFrameReader } from '#daemon/iwarp/faults/frame';
import { StreamFaults } from '#daemon/iwarp/faults/stream-faults';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { streamOf } from '../support/fpdu-stream.ts';
import { concat } from '../support/hex.ts';
import { mpaReply } from '../support/mpa-frames.ts';
import { pattern } from '../support/pattern.ts';

const FACTS = { device: 'a', qpNum: 7, remote: { address: '10.0.0.1', port: 5 } };
const REPLY = Uint8Array.from(mpaReply());

const trigger = fc.record(
  { every: fc.integer({ min: 1, max: 4 }), once: fc.boolean() },
  { requiredKeys: [] },
);
/** Faults that delay bytes without losing any. */
const patient: fc.Arbitrary<FaultSpec> = fc
  .tuple(
    fc.oneof(
      fc.record({ kind: fc.constant('delay' as const), ms: fc.integer({ min: 1, max: 50 }) }),
      fc.record({ kind: fc.constant('stall' as const), ms: fc.integer({ min: 1, max: 50 }) }),
      fc.record({ kind: fc.constant('slice' as const), bytes: fc.integer({ min: 1, max: 99 }) }),
      fc.record({
        kind: fc.constant('bandwidth' as const),
        bytesPerSecond: fc.integer({ min: 1000, max: 1_000_000 }),
      }),
    ),
    trigger,
  )
  .map(([kind, when]) => ({ ...kind, ...when }));

/** All output of a lane, polled at each of its deadlines. */
function drained(faults: StreamFaults, way: 'inbound' | 'outbound', from: number): Uint8Array {
  const parts: Uint8Array[] = [];
  let now = from;
  for (;;) {
    const output = faults[way].poll(now);
    if (output?.type === 'bytes') parts.push(output.bytes);
    if (output !== undefined) continue;
    const due = faults[way].nextDeadline();
    if (due === NEVER) return concat(...parts);
    expect(due).toBeGreaterThan(now);
    now = due;
  }
}

describe('faults that delay bytes', () => {
  it('pass all bytes eventually, in order, in any combination', () => {
    fc.assert(
      fc.property(
        fc.array(patient, { minLength: 1, maxLength: 4 }),
        fc.array(fc.integer({ min: 20, max: 900 }), { minLength: 1, maxLength: 12 }),
        fc.boolean(),
        (specs, lengths, markers) => {
          const faults = new StreamFaults(new TcpFrameReader(0, 0), () => FACTS, crc32c);
          faults.setFaults(specs.map((spec, i) => new Fault(i, spec, undefined)));
          const ulpdus = lengths.map((length, i) => pattern(length, i));
          const stream = concat(REPLY, streamOf(ulpdus, markers));
          faults.handleOutput(stream.slice(), { markers, crcEnabled: true }, 0);
          expect(drained(faults, 'outbound', 0)).toEqual(stream);
          let at = 0;
          for (const length of lengths) {
            faults.handleInput(stream.subarray(at, at + length), at);
            at += length;
          }
          expect(drained(faults, 'inbound', at)).toEqual(stream.subarray(0, at));
          faults.setFaults([]);
          expect(faults.idle).toBe(true);
        },
      ),
    );
  });

  it('end a direction after the given number of bytes, and account for the rest', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 3000 }),
        fc.array(fc.integer({ min: 20, max: 900 }), { minLength: 1, maxLength: 12 }),
        (afterBytes, lengths) => {
          const spec: FaultSpec = { kind: 'close', afterBytes };
          const faults = new StreamFaults(new TcpFrameReader(0, 0), () => FACTS, crc32c);
          faults.setFaults([new Fault(1, spec, undefined)]);
          const stream = concat(
            REPLY,
            streamOf(
              lengths.map((length) => pattern(length)),
              false,
            ),
          );
          faults.handleOutput(stream.slice(), { markers: false, crcEnabled: true }, 0);
          let [passed, lost, ends] = [0, 0, 0];
          for (;;) {
            const output = faults.outbound.poll(0);
            if (output === undefined) break;
            if (output.type === 'bytes') passed += output.bytes.length;
            else if (output.type === 'lost') lost += output.bytes;
            else ends += 1;
          }
          expect(passed).toBe(Math.min(afterBytes, stream.length));
          expect(passed + lost).toBe(stream.length);
          expect(ends).toBe(stream.length >= afterBytes ? 1 : 0);
        },
      ),
    );
  });
});
