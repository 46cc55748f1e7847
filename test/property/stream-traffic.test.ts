/** Laws of two streams back to back, whatever is posted and however TCP cuts it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { hexOf } from '../support/hex.ts';
import { pattern } from '../support/pattern.ts';
import { type Splitter, StreamPair } from '../support/streams.ts';

const MEMORY_BYTES = 4096;
const BASE = 0xffff_ff00n;

/** One thing that a consumer may post. */
const operation = fc.oneof(
  fc.record({ kind: fc.constant('send' as const), size: fc.nat(3000), solicited: fc.boolean() }),
  fc.record({ kind: fc.constant('invalidate' as const), size: fc.nat(300) }),
  fc.record({ kind: fc.constant('write' as const), at: fc.nat(2000), size: fc.nat(2000) }),
  fc.record({
    kind: fc.constant('read' as const),
    at: fc.nat(2000),
    size: fc.nat(2000),
    into: fc.nat(2000),
  }),
  fc.record({ kind: fc.constant('immediate' as const), value: fc.bigInt(0n, (1n << 64n) - 1n) }),
  fc.record({ kind: fc.constant('add' as const), at: fc.nat(50), value: fc.bigInt(0n, 1n << 40n) }),
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

const SOURCE = 0x10;
const TARGET = 0x20;
const SINK = 0x30;
const COUNTER = 0x40;
const FIRST_WINDOW = 0x1000;

/** Cuts each write into pieces of these lengths, in rotation. */
function splitterOf(lengths: readonly number[]): Splitter {
  let turn = 0;
  return (bytes) => {
    const parts: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; ) {
      const size = lengths[turn++ % lengths.length] ?? bytes.length;
      parts.push(bytes.subarray(at, at + size));
      at += size;
    }
    return parts;
  };
}

/** The consumers' expected results, from a model without a protocol. */
class Model {
  readonly delivered: string[] = [];
  readonly target = new Uint8Array(MEMORY_BYTES);
  readonly sink = new Uint8Array(MEMORY_BYTES);
  readonly counter = new BigUint64Array(64);
  readonly originals: string[] = [];
  reads = 0;
}

/** Posts `operations` at the initiator and in the model. */
function post(pair: StreamPair, operations: readonly Operation[], model: Model): void {
  const { a, b } = pair;
  const source = pattern(MEMORY_BYTES);
  b.user.register(SOURCE, MEMORY_BYTES, BASE).set(source);
  b.user.register(TARGET, MEMORY_BYTES, BASE);
  b.user.register(COUNTER, 512, 0);
  a.user.register(SINK, MEMORY_BYTES, BASE);
  operations.forEach((each, index) => {
    switch (each.kind) {
      case 'send': {
        const payload = pattern(each.size, index);
        b.user.postReceive(each.size + (index % 2));
        a.user.send(payload, { solicited: each.solicited });
        model.delivered.push(`${hexOf(payload)} ${each.solicited}`);
        break;
      }
      case 'invalidate': {
        const payload = pattern(each.size, index);
        const kind = OutboundKind.sendWithInvalidate;
        b.user.register(FIRST_WINDOW + index, 1);
        b.user.postReceive(each.size);
        a.user.send(payload, { kind, invalidateStag: FIRST_WINDOW + index });
        model.delivered.push(`${hexOf(payload)} false`);
        break;
      }
      case 'write': {
        const payload = pattern(each.size, index);
        a.user.write(payload, TARGET, BASE + BigInt(each.at));
        model.target.set(payload, each.at);
        break;
      }
      case 'read':
        a.user.read(each.size, [SOURCE, BASE + BigInt(each.at)], [SINK, BASE + BigInt(each.into)]);
        model.sink.set(source.subarray(each.at, each.at + each.size), each.into);
        model.reads++;
        break;
      case 'immediate':
        b.user.postReceive(8);
        a.user.immediate(each.value);
        model.delivered.push(`${each.value.toString(16).padStart(16, '0')} false`);
        break;
      case 'add': {
        const original = model.counter[each.at] ?? 0n;
        a.user.fetchAdd(each.value, COUNTER, each.at * 8);
        model.originals.push(`atomic ${original.toString(16)}`);
        model.counter[each.at] = BigInt.asUintN(64, original + each.value);
        break;
      }
      default:
        each satisfies never;
    }
  });
}

function check(pair: StreamPair, model: Model): void {
  const { a, b } = pair;
  expect([a.failure, b.failure]).toEqual([undefined, undefined]);
  const delivered = b.user.delivered.map(({ payload, solicited }) => `${payload} ${solicited}`);
  expect(delivered).toEqual(model.delivered);
  const memory = (stag: number): Uint8Array | undefined => b.user.regions.get(stag)?.bytes;
  expect(hexOf(memory(TARGET) ?? new Uint8Array())).toBe(hexOf(model.target));
  const sink = a.user.regions.get(SINK)?.bytes;
  expect(hexOf(sink ?? new Uint8Array())).toBe(hexOf(model.sink));
  expect(a.user.log.filter((entry) => entry === 'read').length).toBe(model.reads);
  expect(a.user.log.filter((entry) => entry.startsWith('atomic'))).toEqual(model.originals);
  expect(a.user.jobCount).toBe(0);
}

describe('traffic', () => {
  it('arrives intact and in order, however it is mixed and cut [DDP-3-03, DDP-5.2-03, DDP-5.2-04, DDP-5.3-06, RDMAPX-6.4-01, RDMAP-5.2.1-07, RDMAPX-5.2.1-12]', () => {
    fc.assert(
      fc.property(
        fc.array(operation, { maxLength: 30 }),
        fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 8 }),
        fc.record({
          mulpduBytes: fc.constantFrom(128, 129, 500, 1442, 64768),
          markers: fc.boolean(),
          crc: fc.boolean(),
          ord: fc.integer({ min: 1, max: 4 }),
          highWaterBytes: fc.constantFrom(1, 5000, 500_000),
        }),
        (operations, lengths, { mulpduBytes, markers, crc, ord, highWaterBytes }) => {
          const options = {
            fpduSize: { kind: 'fixed', mulpduBytes },
            markersRequested: markers,
            crcRequested: crc,
          } as const;
          const pair = new StreamPair({
            initiator: { ...options, ord },
            responder: options,
            split: splitterOf(lengths),
            environment: { highWaterBytes },
          }).establish();
          const model = new Model();
          post(pair, operations, model);
          pair.run();
          check(pair, model);
          pair.a.stream.disconnect(0);
          pair.b.stream.disconnect(0);
          pair.run();
          expect([pair.a.closed, pair.b.closed]).toEqual([true, true]);
          expect([pair.a.failure, pair.b.failure]).toEqual([undefined, undefined]);
        },
      ),
      { numRuns: 150 },
    );
  });

  it('is the same when some data must be fetched first', () => {
    fc.assert(
      fc.property(
        fc.array(operation, { maxLength: 15 }),
        fc.array(fc.nat(3), { minLength: 1, maxLength: 20 }),
        (operations, stalls) => {
          const pair = new StreamPair({
            initiator: { fpduSize: { kind: 'fixed', mulpduBytes: 300 } },
            responder: { fpduSize: { kind: 'fixed', mulpduBytes: 300 } },
          }).establish();
          const model = new Model();
          post(pair, operations, model);
          for (const count of stalls) {
            pair.a.user.stallGather = count;
            pair.b.user.stallSource = count;
            pair.run();
          }
          pair.a.user.stallGather = pair.b.user.stallSource = 0;
          pair.run().run();
          check(pair, model);
        },
      ),
      { numRuns: 100 },
    );
  });
});
