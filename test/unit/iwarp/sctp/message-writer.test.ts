import { describe, expect, it } from 'vitest';
import { MessageWriter } from '#daemon/iwarp/sctp/message-writer';
import { segmentBytes, segmentMaxBytes } from '#daemon/iwarp/sctp/sctp-layer';
import { dirtyPool } from '#test/support/fpdu-stream';
import { bytesOf, hexOf } from '#test/support/hex';

const TERMINATE = { function: 4, enhanced: undefined, privateData: new Uint8Array(0) } as const;

function writerOf(change: Partial<ConstructorParameters<typeof MessageWriter>[0]> = {}) {
  const writer = new MessageWriter({ pool: dirtyPool(), segmentMaxBytes: 1426, ...change });
  writer.open();
  return writer;
}

function write(writer: MessageWriter, hex: string): boolean {
  const segment = bytesOf(hex);
  if (!writer.begin(segment.length)) return false;
  writer.bytes.set(segment, writer.ulpduStart);
  writer.commit();
  return true;
}

/** The output, as payload protocol and bytes. */
function poll(writer: MessageWriter): string[] {
  const out: string[] = [];
  for (let message = writer.pollTransmit(); message; message = writer.pollTransmit()) {
    out.push(`${message.payloadProtocol} ${hexOf(message.bytes)}`);
    writer.flushed(message.bytes.length);
  }
  return out;
}

describe('the messages of a session', () => {
  it('count from 0, segments and control together, each whole [SCTP-5.2.1-01, SCTP-5.2.1-02, SCTP-5.2.2-01, SCTP-6-02]', () => {
    const writer = writerOf();
    writer.control({ function: 1, enhanced: undefined, privateData: bytesOf('aa') });
    write(writer, '0102');
    write(writer, '030405');
    writer.control(TERMINATE);
    expect(poll(writer)).toEqual(['17 00000001aa', '16 00010102', '16 0002030405', '17 00030004']);
    expect(writer.queuedBytes).toBe(0);
  });

  it('wrap from 65535 to 0 [SCTP-5.2.1-02]', () => {
    const writer = writerOf({ firstSsn: 0xffff });
    write(writer, 'aa');
    write(writer, 'bb');
    expect(poll(writer)).toEqual(['16 ffffaa', '16 0000bb']);
  });

  it('are refused if they are longer than the path carries, with nothing written [SCTP-9-04]', () => {
    const writer = writerOf();
    expect(writer.begin(1426)).toBe(true);
    expect(() => writer.begin(1427)).toThrow(RangeError);
    expect(() => writer.begin(0)).toThrow(RangeError);
    expect(poll(writer)).toEqual([]);
  });

  it('wait when too many bytes are queued, and a dropped one leaves no number behind', () => {
    const writer = writerOf({ highWaterBytes: 6 });
    expect(writer.begin(3)).toBe(true);
    expect(write(writer, '01020304')).toBe(true);
    expect(write(writer, '05')).toBe(false);
    expect(poll(writer)).toEqual(['16 000001020304']);
    expect(write(writer, '05')).toBe(true);
    expect(poll(writer)).toEqual(['16 000105']);
  });

  it('use more chunks and a longer ring than the initial ones, and release them', () => {
    const pool = dirtyPool();
    const writer = writerOf({ pool });
    const expected: string[] = [];
    for (let n = 0; n < 300; n += 1) {
      const length = 1 + ((n * 37) % 1400);
      const byte = (n & 0xff).toString(16).padStart(2, '0');
      write(writer, `${byte}*${length}`);
      expected.push(`16 ${n.toString(16).padStart(4, '0')}${byte.repeat(length)}`);
    }
    expect(pool.inUseCount).toBeGreaterThan(2);
    expect(poll(writer)).toEqual(expected);
    expect(pool.inUseCount).toBe(0);
    write(writer, 'aa');
    writer.release();
    expect(pool.inUseCount).toBe(0);
    expect(writer.pollTransmit()).toBeUndefined();
  });
});

describe('Writes of 64 KiB, in segments of at most 65,458 bytes', () => {
  const HEADER_BYTES = 14;
  const WRITE_BYTES = 65_536;

  /** Lengths of the messages into which DDP cuts Writes; `+` marks all but the last of a poll. */
  function cut(writes: number): string[] {
    const segmentMax = segmentMaxBytes(65_476);
    const writer = writerOf({ segmentMaxBytes: segmentMax, highWaterBytes: 1 << 20 });
    for (let count = 0; count < writes; count += 1) {
      for (let left = WRITE_BYTES; left > 0; ) {
        const payload = Math.min(left, writer.ulpduRoomBytes(segmentMax) - HEADER_BYTES);
        expect(writer.begin(HEADER_BYTES + payload)).toBe(true);
        writer.commit();
        left -= payload;
      }
    }
    const out: string[] = [];
    for (let message = writer.pollTransmit(); message; message = writer.pollTransmit()) {
      out.push(`${message.bytes.length}${message.followed ? '+' : ''}`);
      writer.flushed(message.bytes.length);
    }
    return out;
  }

  it('fill one packet after the other, each with the end of the Write before', () => {
    expect(cut(3)).toEqual(['65460+', '108+', '65336+', '232+', '65212+', '356']);
    // The chunks of a packet: 16 bytes of header each, padded, and room for a SACK.
    for (const [end, start] of [
      [108, 65_336],
      [232, 65_212],
    ] as const) {
      expect(16 + end + 16 + start).toBeLessThanOrEqual(65_476);
    }
  });

  it('start with a full packet when nothing is queued', () => {
    expect(cut(1)).toEqual(['65460+', '108']);
  });
});

describe('the size of a segment', () => {
  it('leaves room for the DDP-SSN and a SACK, and is never below 516 [SCTP-9-01, SCTP-9-03]', () => {
    // IPv4 at 1500: 20 of IP, 12 of SCTP, 16 of the DATA chunk.
    expect(segmentMaxBytes(1500 - 20 - 12 - 16)).toBe(1434);
    expect(segmentMaxBytes(252)).toBe(516);
    expect(segmentMaxBytes(65_476)).toBe(65_458);
    expect(segmentMaxBytes(100_000)).toBe(65_535);
  });

  it('follows a policy only within the path MTU [SCTP-9-02]', () => {
    expect(segmentBytes({ kind: 'emss' }, 1444)).toBe(1426);
    expect(segmentBytes({ kind: 'large' }, 1444)).toBe(1426);
    expect(segmentBytes({ kind: 'fixed', mulpduBytes: 9000 }, 1444)).toBe(1426);
    expect(segmentBytes({ kind: 'fixed', mulpduBytes: 600 }, 1444)).toBe(600);
    expect(segmentBytes({ kind: 'fixed', mulpduBytes: 1 }, 1444)).toBe(128);
  });
});
