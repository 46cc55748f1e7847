import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { crc32, rangeCrc32 } from '#daemon/roce/wire/crc32';
import {
  Datagram,
  DatagramRefusal,
  parseDatagram,
  writeDatagramHeaders,
} from '#daemon/roce/wire/datagram';
import {
  bytesFromIdentification,
  ICRC_BYTES,
  IcrcHeaders,
  icrcOf,
  readIcrc,
} from '#daemon/roce/wire/icrc';
import { identificationOf } from '#daemon/roce/wire/identification';
import { BTH_BYTES } from '#daemon/roce/wire/opcode';
import { recordedDatagrams } from '#test/support/roce-recordings';

/** ICRC as a receiver without the IP header computes it: with identification 0. */
function icrcOfZero(bytes: Uint8Array): { icrc: number; length: number; identification: number } {
  const datagram = new Datagram();
  expect(parseDatagram(bytes, 0, bytes.length, datagram)).toBe(DatagramRefusal.none);
  const { packetStart, packetLength, sourceGid, destGid, sourcePort } = datagram;
  const headers = new IcrcHeaders((bytes[0] ?? 0) >> 4 === 4);
  headers.setEnds(sourceGid, destGid, sourcePort);
  const start = headers.crcOf(bytes, packetStart, packetLength);
  const end = packetStart + packetLength;
  const icrc = rangeCrc32(crc32, bytes, packetStart + BTH_BYTES, end, start);
  return { icrc, length: packetLength, identification: datagram.identification };
}

describe('the headers that an ICRC covers', () => {
  it('match those of IPv6 packets of rxe', () => {
    for (const bytes of recordedDatagrams('opcodes-ipv6')) {
      expect(icrcOfZero(bytes).icrc).toBe(readIcrc(bytes, bytes.length - ICRC_BYTES));
    }
  });
});

describe('the identification of a datagram', () => {
  it('is found from the ICRC of every packet of rxe', () => {
    const found = recordedDatagrams('opcodes-ipv4').map((bytes) => {
      const { icrc, length, identification } = icrcOfZero(bytes);
      const sent = readIcrc(bytes, bytes.length - ICRC_BYTES);
      expect(identificationOf(sent, icrc, bytesFromIdentification(length))).toBe(identification);
      return identification;
    });
    expect(new Set(found).size).toBeGreaterThan(50);
  });

  it('is found for any number, length and content, and damage is seen', () => {
    const word = fc.integer({ min: 0, max: 0xffff });
    const quarter = fc.integer({ min: 3, max: 1039 });
    fc.assert(
      fc.property(word, quarter, fc.nat(), fc.nat(), (identification, words, seed, where) => {
        const datagram = new Datagram();
        const packetLength = 4 * words;
        Object.assign(datagram, { identification, packetLength });
        datagram.sourceGid.set([0xff, 0xff, 10, 0, 0, 1], 10);
        datagram.destGid.set([0xff, 0xff, 10, 0, 0, 2], 10);
        const bytes = new Uint8Array(28 + packetLength + ICRC_BYTES);
        const start = writeDatagramHeaders(bytes, 0, datagram);
        for (let at = start; at < bytes.length; at += 1) bytes[at] = (at * (seed | 1)) >> 3;
        const sent = icrcOf(crc32, bytes, 0, start, start + packetLength);
        const rest = bytesFromIdentification(packetLength);
        expect(identificationOf(sent, icrcOfZero(bytes).icrc, rest)).toBe(identification);
        // Damage may look like another identification, once in 65,536 times, but not like this one.
        if (packetLength === BTH_BYTES) return;
        const at = start + BTH_BYTES + (where % (packetLength - BTH_BYTES));
        bytes[at] = (bytes[at] ?? 0) ^ 0x81;
        expect(identificationOf(sent, icrcOfZero(bytes).icrc, rest)).not.toBe(identification);
      }),
    );
  });

  it('is undefined for an impossible length', () => {
    expect(identificationOf(1, 2, 0)).toBeUndefined();
    expect(identificationOf(1, 2, 8192)).toBeUndefined();
  });
});
