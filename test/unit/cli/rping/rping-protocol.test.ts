import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ADVERT_BYTES,
  ClientSequence,
  emitAdvert,
  fillPing,
  firstDifference,
  MAX_SIZE_BYTES,
  MIN_SIZE_BYTES,
  parseAdvert,
  pingText,
  ServerSequence,
  textSizeBytes,
} from '#daemon/cli/rping/rping-protocol';

/** The first advert of a recorded conversation of two kernel peers, and its contents. */
const RECORDED = {
  bytes: Uint8Array.from(Buffer.from('000055accfb41470' + '83cd2600' + '00000040', 'hex')),
  advert: { address: 0x55accfb41470n, rkey: 0x83cd2600, size: 64 },
};

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');

describe('an advert', () => {
  it('parses a recorded one', () => {
    expect(parseAdvert(RECORDED.bytes)).toEqual(RECORDED.advert);
  });

  it('writes every byte of it', () => {
    const target = new Uint8Array(ADVERT_BYTES).fill(0xa5);
    emitAdvert(RECORDED.advert, target);
    expect(hex(target)).toBe(hex(RECORDED.bytes));
  });

  it('keeps the widest values', () => {
    const target = new Uint8Array(ADVERT_BYTES);
    emitAdvert({ address: 2n ** 64n - 1n, rkey: 0xffffffff, size: 0xffffffff }, target);
    expect(hex(target)).toBe('ff'.repeat(16));
    expect(parseAdvert(target)?.address).toBe(2n ** 64n - 1n);
  });

  it('is exactly 16 bytes', () => {
    expect(parseAdvert(new Uint8Array(15))).toBeUndefined();
    expect(parseAdvert(new Uint8Array(17))).toBeUndefined();
    expect(() => emitAdvert(RECORDED.advert, new Uint8Array(17))).toThrow(RangeError);
  });

  it('reads from the middle of a buffer', () => {
    const buffer = new Uint8Array(40).fill(0xee);
    buffer.set(RECORDED.bytes, 7);
    expect(parseAdvert(buffer.subarray(7, 23))).toEqual(RECORDED.advert);
  });
});

describe('the ping text', () => {
  // As rdma-core's rping prints it with -v.
  const PRINTED = [
    'rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr',
    'rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs',
    'rdma-ping-2: CDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrst',
  ];

  it.each(PRINTED.map((text, ping) => ({ ping, text })))('of ping $ping', ({ ping, text }) => {
    const buffer = new Uint8Array(64).fill(0xa5);
    fillPing(buffer, ping);
    expect(pingText(buffer)).toBe(text);
    expect(buffer[63]).toBe(0);
    expect(textSizeBytes(buffer)).toBe(64);
  });

  it('starts again at A after z, within a ping and from ping to ping', () => {
    const buffer = new Uint8Array(128);
    fillPing(buffer, 57);
    expect(pingText(buffer).slice(0, 18)).toBe('rdma-ping-57: zABC');
    fillPing(buffer, 58);
    expect(pingText(buffer).slice(0, 18)).toBe('rdma-ping-58: ABCD');
    expect(pingText(buffer).slice(14, 14 + 60)).toBe(
      'ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzAB',
    );
  });

  it('of the largest number fits the smallest size', () => {
    const buffer = new Uint8Array(MIN_SIZE_BYTES);
    fillPing(buffer, 2147483647);
    expect(pingText(buffer)).toBe('rdma-ping-2147483647: ');
  });

  it('without a NUL is the whole buffer', () => {
    expect(textSizeBytes(Uint8Array.of(65, 66))).toBe(2);
    expect(pingText(Uint8Array.of(65, 66))).toBe('AB');
    expect(textSizeBytes(Uint8Array.of(65, 0, 66))).toBe(2);
  });

  it('holds one NUL, at the end, for any size and number', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: MIN_SIZE_BYTES, max: MAX_SIZE_BYTES }),
        fc.integer({ min: 0, max: 2147483647 }),
        (size, ping) => {
          const buffer = new Uint8Array(size).fill(0xa5);
          fillPing(buffer, ping);
          expect(textSizeBytes(buffer)).toBe(size);
          expect(pingText(buffer).startsWith(`rdma-ping-${ping}: `)).toBe(true);
        },
      ),
      { numRuns: 50 },
    );
  });
});

describe('firstDifference', () => {
  it('returns the index of the byte, or undefined', () => {
    expect(firstDifference(Uint8Array.of(1, 2, 3), Uint8Array.of(1, 2, 3))).toBeUndefined();
    expect(firstDifference(Uint8Array.of(1, 2, 3), Uint8Array.of(1, 9, 3))).toBe(1);
    expect(firstDifference(Uint8Array.of(1, 2), Uint8Array.of(1, 2, 3))).toBe(2);
  });
});

describe('the server', () => {
  it('reads, goes ahead, writes, goes ahead, and starts over', () => {
    const server = new ServerSequence(64);
    for (let ping = 0; ping < 3; ping++) {
      expect(server.betweenPings).toBe(true);
      expect(server.handleReceive(RECORDED.bytes)).toEqual({
        type: 'read',
        source: RECORDED.advert,
      });
      expect(server.betweenPings).toBe(false);
      expect(server.handleReadDone()).toEqual({ type: 'go-ahead', after: 'read' });
      expect(server.handleReceive(RECORDED.bytes)).toEqual({
        type: 'write',
        sink: RECORDED.advert,
      });
      expect(server.handleWriteDone()).toEqual({ type: 'go-ahead', after: 'write' });
      expect(server.pings).toBe(ping + 1);
    }
  });

  it('refuses a size above its buffer, and accepts one that just fits', () => {
    expect(new ServerSequence(63).handleReceive(RECORDED.bytes)).toMatchObject({ type: 'fault' });
    expect(new ServerSequence(64).handleReceive(RECORDED.bytes)).toMatchObject({ type: 'read' });
  });

  it('refuses a message of another length, and an advert out of turn', () => {
    const server = new ServerSequence(64);
    expect(server.handleReceive(new Uint8Array(15))).toMatchObject({ type: 'fault' });
    server.handleReceive(RECORDED.bytes);
    expect(server.handleReceive(RECORDED.bytes)).toMatchObject({ type: 'fault' });
  });

  it('treats a completion out of turn as an error', () => {
    expect(new ServerSequence(64).handleReadDone()).toMatchObject({ type: 'fault' });
    expect(new ServerSequence(64).handleWriteDone()).toMatchObject({ type: 'fault' });
  });
});

describe('the client', () => {
  it('advertises source and sink, shows the pong, and ends after its count', () => {
    const client = new ClientSequence(2);
    for (let ping = 0; ping < 2; ping++) {
      expect(client.next()).toEqual({ type: 'advertise-source', ping });
      expect(client.handleReceive(16)).toEqual({ type: 'advertise-sink' });
      expect(client.handleReceive(16)).toEqual({ type: 'pong', ping });
    }
    expect(client.next()).toEqual({ type: 'done' });
    expect(client.pings).toBe(2);
  });

  it('never ends with a count of 0', () => {
    const client = new ClientSequence(0);
    for (let ping = 0; ping < 1000; ping++) {
      expect(client.next()).toEqual({ type: 'advertise-source', ping });
      client.handleReceive(16);
      client.handleReceive(16);
    }
  });

  it('refuses a go-ahead of another length, an unsolicited one, and a start within a ping', () => {
    const client = new ClientSequence(0);
    expect(client.handleReceive(16)).toMatchObject({ type: 'fault' });
    client.next();
    expect(client.handleReceive(17)).toMatchObject({ type: 'fault' });
    expect(client.next()).toMatchObject({ type: 'fault' });
  });
});
