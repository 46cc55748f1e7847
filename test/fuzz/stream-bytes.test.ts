/**
 * A stream against every single change of a valid conversation. It never throws, never places data
 * outside registered memory, ends at most once, and sends at most one Terminate and nothing after
 * it. The target wire-stream adds random changes and a real queue pair.
 */
import { describe, expect, it } from 'vitest';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { FpduReceiver } from '#daemon/iwarp/engine/fpdu-receiver';
import type { Stream } from '#daemon/iwarp/engine/stream';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { streamOf as framed, RecordingSink } from '../support/fpdu-stream.ts';
import { bytesOf, concat } from '../support/hex.ts';
import { ModelUser } from '../support/model-user.ts';
import { streamOf } from '../support/streams.ts';

const REQUEST = bytesOf('4d504120494420526571204672616d65 00 01 0000');
const GUARD = 0x5a;

/** Valid segments of every kind, in an order that a peer may use. */
const VALID = [
  'c140 11223344 0000000000001000 4142434445464748',
  '0143 00000000 00000000 00000001 00000000 55*30',
  '4143 00000000 00000000 00000001 0000001e 55*30',
  '4144 cafe0001 00000000 00000002 00000000 4142',
  '4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000020 11223344 0000000000001000',
  '414a 00000000 00000001 00000002 00000000 00000000 00000007 11223344 0000000000001008 0000000000000001 00*16 ff*8',
  '4149 00000000 00000000 00000003 00000000 0102030405060708',
  '8140 11223344 0000000000001ff0 41424344',
  'c140 11223344 0000000000001ff4 41424344',
  '4146 cafe0002 00000000 00000004 00000000',
  '4147 00000000 00000002 00000001 00000000 1201c000 0016 4143 00000000 00000005 00000001 00000000',
].map(bytesOf);

/** A responder in Full Operation, without CRCs: mutated bytes must pass MPA. */
class Target {
  readonly stream: Stream;
  readonly user = new ModelUser();
  readonly events: string[] = [];
  readonly #sink = new RecordingSink();
  readonly #receiver = new FpduReceiver({
    pool: new ChunkPool(),
    crc32c,
    crcEnabled: false,
    markers: false,
  });
  readonly #memory = new Uint8Array(0x3000).fill(GUARD);
  #skip = 20;

  constructor() {
    const bytes = this.#memory.subarray(0x1000, 0x2000);
    this.user.register(0x11223344, 0, 0x1000, { bytes });
    this.user.register(0xcafe0001, 16);
    this.user.register(0xcafe0002, 16);
    this.user.postReceive(64, 4);
    this.stream = streamOf({ crcRequested: false, mpaRevision: 1 });
    this.stream.listen(0);
    this.stream.handleBytes(REQUEST, 0);
    this.stream.accept(new Uint8Array(0), this.user, { ird: 4, ord: 4 }, 0);
    this.settle();
  }

  feed(bytes: Uint8Array): void {
    this.stream.handleBytes(bytes, 0);
    this.settle();
  }

  settle(): void {
    this.stream.pump(0);
    for (let out = this.stream.pollTransmit(); out; out = this.stream.pollTransmit()) {
      const { bytes } = out;
      const start = Math.min(this.#skip, bytes.length);
      this.#skip -= start;
      this.#receiver.push(bytes, start, bytes.length, this.#sink);
      this.stream.handleFlushed(bytes.length, 0);
    }
    for (let event = this.stream.pollEvent(); event; event = this.stream.pollEvent()) {
      this.events.push(event.type);
    }
  }

  /** Ends the connection and checks the invariants. */
  check(): void {
    this.stream.handlePeerClosed(0);
    this.settle();
    this.stream.disconnect(0);
    this.settle();
    this.stream.handleDeadline(10_000_000);
    this.settle();
    this.stream.handleClosed(undefined, 0);
    this.settle();
    expect(this.events.filter((type) => type === 'closed').length).toBe(1);
    expect(this.events.filter((type) => type === 'terminated').length).toBeLessThan(2);
    const terminates = this.#sink.hex.filter((ulpdu) => ulpdu.startsWith('4147'));
    expect(terminates.length).toBeLessThan(2);
    if (terminates.length === 1) expect(this.#sink.hex.at(-1)).toBe(terminates[0]);
    const guards = concat(this.#memory.subarray(0, 0x1000), this.#memory.subarray(0x2000));
    expect(guards.every((byte) => byte === GUARD)).toBe(true);
  }
}

function mutated(ulpdus: readonly Uint8Array[], edits: readonly [number, number, number][]) {
  return ulpdus.map((ulpdu, index) => {
    const copy = ulpdu.slice();
    for (const [which, at, value] of edits) {
      if (which % ulpdus.length === index && copy.length > 0) copy[at % copy.length] = value;
    }
    return copy;
  });
}

/** Values to set each header byte to. */
const VALUES = [0x00, 0x01, 0x3f, 0x41, 0x7f, 0x80, 0xc1, 0xff] as const;

describe('a stream against hostile bytes', () => {
  it('accepts the valid conversation that the mutations start from', () => {
    const target = new Target();
    target.feed(framed(VALID, false, false));
    expect(target.user.delivered.length).toBe(4);
    expect(target.events).toEqual(['request', 'established', 'terminated', 'finish']);
    target.check();
  });

  it('survives every value of every header byte of every segment', () => {
    for (const [index, ulpdu] of VALID.entries()) {
      for (let at = 0; at < Math.min(ulpdu.length, 46); at++) {
        for (const value of VALUES) {
          const target = new Target();
          target.feed(framed(mutated(VALID, [[index, at, value]]), false, false));
          target.check();
        }
      }
    }
  });

  it('survives segments truncated to every length [DDP-4.4-02]', () => {
    for (const [index, ulpdu] of VALID.entries()) {
      for (let length = 1; length < ulpdu.length; length++) {
        const target = new Target();
        const cut = VALID.map((each, i) => (i === index ? each.subarray(0, length) : each));
        target.feed(framed(cut, false, false));
        target.check();
      }
    }
  });

  it('survives Responses with any byte changed, as the requester [RDMAP-5.2.2-06, RDMAPX-5.2.2-06]', () => {
    const responses = [
      '8142 00000031 0000000000001000 41*20',
      'c142 00000031 0000000000001014 41*20',
      '414b 00000000 00000003 00000001 00000000 00000000 000000000000002a',
      'c142 00000000 0000000000000000',
      'c142 00000031 0000000000001000 41*40',
      '4143 00000000 00000000 00000001 00000000 55*30',
    ].map(bytesOf);
    const requester = (): Target => {
      const target = new Target();
      target.user.register(0x31, 40, 0x1000);
      target.user.read(40, [1, 0], [0x31, 0x1000]);
      target.user.fetchAdd(1n, 1, 0);
      target.user.read(0, [1, 0], [0x31, 0x1000]);
      target.user.read(40, [1, 0], [0x31, 0x1000]);
      target.feed(framed([bytesOf('c140 00000000 0000000000000000')], false, false));
      return target;
    };
    const whole = requester();
    whole.feed(framed(responses, false, false));
    expect(whole.user.log.slice(4)).toEqual(['read', 'atomic 2a', 'read', 'read', 'received 30']);
    whole.check();
    for (const [index, ulpdu] of responses.entries()) {
      for (let at = 0; at < ulpdu.length; at++) {
        for (const value of VALUES) {
          const target = requester();
          target.feed(framed(mutated(responses, [[index, at, value]]), false, false));
          target.check();
          const completed = target.user.log.filter((entry) => entry === 'read').length;
          expect(completed).toBeLessThanOrEqual(3);
        }
      }
    }
  });

  it('detects a placement out of bounds (canary)', () => {
    const target = new Target();
    // A NIC whose bounds check is broken: the guard in front of the memory is written.
    target.user.placeWrite = (_stag, _toHi, toLo, bytes, start, length) => {
      const region = target.user.regions.get(0x11223344)?.bytes;
      const whole = new Uint8Array(region?.buffer ?? new ArrayBuffer(0));
      whole.set(bytes.subarray(start, start + length), toLo);
      return 0;
    };
    target.feed(framed([bytesOf('c140 11223344 0000000000000fff 4142')], false, false));
    expect(() => target.check()).toThrow();
  });
});
