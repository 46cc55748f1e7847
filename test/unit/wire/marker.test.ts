import { describe, expect, it } from 'vitest';
import { fpduSizeBytes } from '../../../daemon/wire/fpdu.ts';
import {
  insertMarkers,
  leadingMarkerBytes,
  markedSizeBytes,
  markerPhase,
  markersAgree,
  stripMarkers,
} from '../../../daemon/wire/marker.ts';
import { readUint16, writeUint16 } from '../../../daemon/wire/octets.ts';
import { hexOf, octetsOf } from '../../support/hex.ts';

/** The stream octets of a patterned FPDU at `phase`, from a buffer full of leftovers. */
function marked(phase: number, fpduBytes: number): Uint8Array {
  const span = markedSizeBytes(phase, fpduBytes);
  const buffer = new Uint8Array(span + 8).fill(0xa5);
  const header = 4 + leadingMarkerBytes(phase);
  for (let i = 0; i < fpduBytes; i++) buffer[header + i] = 1 + (i % 251);
  insertMarkers(buffer, 4, fpduBytes, phase);
  expect(hexOf(buffer.subarray(0, 4))).toBe('a5a5a5a5');
  expect(hexOf(buffer.subarray(span + 4))).toBe('a5a5a5a5');
  return buffer.slice(4, 4 + span);
}

describe('markers', () => {
  it('MPA-4.2-01, MPA-4.2-02: a marker is two zero octets and FPDUPTR in network byte order', () => {
    expect(hexOf(marked(492, 48).subarray(20, 24))).toBe('00000014');
  });

  it('MPA-4.3-12: figure 4, a marker 12 octets into an FPDU of 16 ULPDU octets', () => {
    const buffer = new Uint8Array(28).fill(0xa5);
    buffer.set(octetsOf('0010 000102030405060708090a0b0c0d0e0f 0000 11223344'));
    insertMarkers(buffer, 0, 24, 500);
    expect(hexOf(buffer)).toBe('0010000102030405060708090000000c0a0b0c0d0e0f000011223344');
  });

  it('MPA-4.3-04: markers of a large first FPDU point back 0x1fc, 0x3fc, 0x5fc', () => {
    const octets = marked(0, 2000);
    const pointers = [0, 512, 1024, 1536].map((at) => hexOf(octets.subarray(at, at + 4)));
    expect(pointers).toEqual(['00000000', '000001fc', '000003fc', '000005fc']);
  });

  it('MPA-4.3-06: a marker that falls between FPDUs leads the second, with FPDUPTR 0', () => {
    expect(markedSizeBytes(0, 508)).toBe(512);
    expect(leadingMarkerBytes(markerPhase(512))).toBe(4);
    expect(hexOf(marked(0, 48).subarray(0, 4))).toBe('00000000');
  });

  it('MPA-4.3-05: positions and pointers allow for a wrap of the sequence number', () => {
    const seqStart = 0xfffffff0;
    const isMarker = (seq: number) => markerPhase(seq - seqStart) === 0;
    expect([0xfffffff0, 0x1f0, 0x3f0].every(isMarker)).toBe(true);
    expect([0xfffffff4, 0, 0x1ec, 0x1f4].some(isMarker)).toBe(false);
    // An FPDU that begins four octets behind the first marker, and its marker at 0x1f0.
    const phase = markerPhase(0xfffffff4 - seqStart);
    const octets = marked(phase, 600);
    expect(readUint16(octets, 512 - phase + 2)).toBe(0x1fc);
  });

  it('MPA-4.3-08: positions count from the first marker, not from multiples of 512', () => {
    const isMarker = (seq: number) => markerPhase(seq - 11) === 0;
    expect([11, 523, 1035].every(isMarker)).toBe(true);
    expect([0, 512, 1024].some(isMarker)).toBe(false);
  });

  it('MPA-4.3-15: the largest FPDU sent holds at most 128 markers and spans 65288 octets', () => {
    const size = fpduSizeBytes(64768);
    const octets = marked(256, size);
    expect(octets.length).toBe(65288);
    expect(readUint16(octets, 256 + 127 * 512 + 2)).toBe(0xff00);
    for (let phase = 0; phase < 512; phase += 4) {
      const markers = (markedSizeBytes(phase, size) - size - leadingMarkerBytes(phase)) / 4;
      expect(markers).toBeLessThanOrEqual(128);
    }
  });

  it('MPA-4.2-03, MPA-4.2-05: RESERVED and the two low bits of FPDUPTR are ignored', () => {
    const octets = marked(492, 48);
    octets.set([0xff, 0xff, 0x00, 0x17], 20);
    expect(markersAgree(octets, 0, 48, 492)).toBe(true);
    writeUint16(octets, 22, 0x18);
    expect(markersAgree(octets, 0, 48, 492)).toBe(false);
  });

  it('MPA-8-04: every marker of an FPDU is compared, the leading one too', () => {
    const octets = marked(0, 2000);
    expect(markersAgree(octets, 0, 2000, 0)).toBe(true);
    for (const at of [0, 512, 1024, 1536]) {
      const before = readUint16(octets, at + 2);
      writeUint16(octets, at + 2, before + 4);
      expect(markersAgree(octets, 0, 2000, 0)).toBe(false);
      writeUint16(octets, at + 2, before);
    }
  });

  it.each([0, 4, 256, 508])(
    'MPA-4.3-13: stripping gives back the FPDU set at phase %i',
    (phase) => {
      for (const fpduBytes of [8, 48, 504, 508, 512, 1016, 1020, 5000]) {
        const octets = marked(phase, fpduBytes);
        const plain = Uint8Array.from({ length: fpduBytes }, (_, i) => 1 + (i % 251));
        const target = new Uint8Array(fpduBytes + 6).fill(0xa5);
        stripMarkers(octets, 0, fpduBytes, phase, target, 3);
        expect(hexOf(target)).toBe(`a5a5a5${hexOf(plain)}a5a5a5`);
        stripMarkers(octets, 0, fpduBytes, phase, octets, 0);
        expect(hexOf(octets.subarray(0, fpduBytes))).toBe(hexOf(plain));
      }
    },
  );
});
