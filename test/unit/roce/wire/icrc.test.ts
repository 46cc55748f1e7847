import { crc32 as zlibCrc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { crc32, rangeCrc32, tableCrc32 } from '#daemon/roce/wire/crc32';
import { Datagram, DatagramRefusal, parseDatagram } from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, icrcOfHeaders, readIcrc, writeIcrc } from '#daemon/roce/wire/icrc';
import { BTH_BYTES } from '#daemon/roce/wire/opcode';
import { hexOf } from '#test/support/hex';
import { recordedDatagrams } from '#test/support/roce-recordings';

/** ICRC of a whole datagram, computed again. */
function icrcOfDatagram(bytes: Uint8Array): number {
  const datagram = new Datagram();
  expect(parseDatagram(bytes, 0, bytes.length, datagram)).toBe(DatagramRefusal.none);
  const { packetStart, packetLength } = datagram;
  return icrcOf(crc32, bytes, 0, packetStart, packetStart + packetLength);
}

describe('CRC-32', () => {
  it('is that of zlib for every size, offset and cut', () => {
    const bytes = Uint8Array.from({ length: 5000 }, (_, index) => (index * 131) & 0xff);
    for (const length of [0, 1, 7, 8, 9, 127, 128, 129, 1024, 4096]) {
      for (const start of [0, 1, 3]) {
        const view = bytes.subarray(start, start + length);
        expect(crc32(view)).toBe(zlibCrc32(view));
        const cut = start + (length >> 1);
        const first = tableCrc32(bytes, start, cut);
        expect(rangeCrc32(zlibCrc32, bytes, cut, start + length, first)).toBe(zlibCrc32(view));
      }
    }
    expect(() => tableCrc32(bytes, 4999, 5001)).toThrow(RangeError);
  });
});

describe.each(['ipv4', 'ipv6'] as const)('the ICRC over %s', (family) => {
  const datagrams = recordedDatagrams(`opcodes-${family}`);

  it('is the one that rxe computed, for every packet of the recording [ROCE-ICRC-01]', () => {
    expect(datagrams).toHaveLength(95);
    for (const bytes of datagrams) {
      const icrc = icrcOfDatagram(bytes);
      expect(icrc.toString(16)).toBe(readIcrc(bytes, bytes.length - ICRC_BYTES).toString(16));
      const written = new Uint8Array(ICRC_BYTES);
      writeIcrc(written, 0, icrc);
      expect(hexOf(written)).toBe(hexOf(bytes.subarray(-ICRC_BYTES)));
    }
  });

  it('is the same over headers and payload in pieces', () => {
    const bytes = datagrams.reduce((a, b) => (a.length >= b.length ? a : b));
    const datagram = new Datagram();
    parseDatagram(bytes, 0, bytes.length, datagram);
    const { packetStart, packetLength } = datagram;
    const packet = bytes.slice(packetStart, packetStart + packetLength);
    const headers = bytes.slice(0, packetStart);
    for (const cut of [BTH_BYTES, BTH_BYTES + 1, 100, packetLength]) {
      const first = icrcOfHeaders(headers, 0, packet, 0);
      const middle = rangeCrc32(zlibCrc32, packet, BTH_BYTES, cut, first);
      const whole = rangeCrc32(zlibCrc32, packet, cut, packetLength, middle);
      expect(whole).toBe(readIcrc(bytes, bytes.length - ICRC_BYTES));
    }
  });

  it('covers every bit except those that routers may change [ROCE-ICRC-02, ROCE-ICRC-05]', () => {
    const [first = new Uint8Array()] = datagrams;
    const expected = icrcOfDatagram(first);
    const ipBytes = family === 'ipv4' ? 20 : 40;
    const changeable: readonly number[] = family === 'ipv4' ? [1, 8, 10, 11] : [1, 2, 3, 7];
    const masked = new Set([...changeable, ipBytes + 6, ipBytes + 7, ipBytes + 8 + 4]);
    const uncovered = new Set<number>();
    for (let at = 0; at < first.length - ICRC_BYTES; at += 1) {
      for (let bit = 0; bit < 8; bit += 1) {
        const changed = Uint8Array.from(first);
        changed[at] = (changed[at] ?? 0) ^ (1 << bit);
        const icrc = icrcOf(crc32, changed, 0, ipBytes + 8, first.length - ICRC_BYTES);
        // The version selects the mask; the low half of IPv6's first byte is traffic class.
        if (at === 0) continue;
        if (icrc === expected) uncovered.add(at);
        expect(icrc === expected, `byte ${at} bit ${bit}`).toBe(masked.has(at));
      }
    }
    expect(uncovered).toEqual(masked);
  });
});
