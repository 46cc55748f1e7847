import { describe, expect, it } from 'vitest';
import { readUint16, writeUint16 } from '#base/checked-bytes';
import { fpduSizeBytes } from '#daemon/iwarp/wire/fpdu';
import {
  insertMarkers,
  leadingMarkerBytes,
  markedSizeBytes,
  markerPhase,
  markersAgree,
  stripMarkers,
} from '#daemon/iwarp/wire/marker';
import { bytesOf, hexOf } from '#test/support/hex';

/** The stream bytes of a patterned FPDU at `phase`, from a buffer full of leftovers. */
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
  it('a marker is two zero bytes and FPDUPTR in network byte order [MPA-4.2-01, MPA-4.2-02]', () => {
    expect(hexOf(marked(492, 48).subarray(20, 24))).toBe('00000014');
  });

  it('figure 4, a marker 12 bytes into an FPDU of 16 ULPDU bytes [MPA-4.3-12]', () => {
    const buffer = new Uint8Array(28).fill(0xa5);
    buffer.set(bytesOf('0010 000102030405060708090a0b0c0d0e0f 0000 11223344'));
    insertMarkers(buffer, 0, 24, 500);
    expect(hexOf(buffer)).toBe('0010000102030405060708090000000c0a0b0c0d0e0f000011223344');
  });

  it('markers of a large first FPDU point back 0x1fc, 0x3fc, 0x5fc [MPA-4.3-04]', () => {
    const bytes = marked(0, 2000);
    const pointers = [0, 512, 1024, 1536].map((at) => hexOf(bytes.subarray(at, at + 4)));
    expect(pointers).toEqual(['00000000', '000001fc', '000003fc', '000005fc']);
  });

  it('a marker that falls between FPDUs leads the second, with FPDUPTR 0 [MPA-4.3-06]', () => {
    expect(markedSizeBytes(0, 508)).toBe(512);
    expect(leadingMarkerBytes(markerPhase(512))).toBe(4);
    expect(hexOf(marked(0, 48).subarray(0, 4))).toBe('00000000');
  });

  it('positions and pointers allow for a wrap of the sequence number [MPA-4.3-05]', () => {
    const seqStart = 0xfffffff0;
    const isMarker = (seq: number) => markerPhase(seq - seqStart) === 0;
    expect([0xfffffff0, 0x1f0, 0x3f0].every(isMarker)).toBe(true);
    expect([0xfffffff4, 0, 0x1ec, 0x1f4].some(isMarker)).toBe(false);
    // An FPDU that begins four bytes after the first marker, and its marker at 0x1f0.
    const phase = markerPhase(0xfffffff4 - seqStart);
    expect(readUint16(marked(phase, 600), 512 - phase + 2)).toBe(0x1fc);
  });

  it('positions count from the first marker, not from multiples of 512 [MPA-4.3-08]', () => {
    const isMarker = (seq: number) => markerPhase(seq - 11) === 0;
    expect([11, 523, 1035].every(isMarker)).toBe(true);
    expect([0, 512, 1024].some(isMarker)).toBe(false);
  });

  it('the largest FPDU sent holds at most 128 markers and spans 65288 bytes [MPA-4.3-15]', () => {
    const size = fpduSizeBytes(64768);
    const bytes = marked(256, size);
    expect(bytes.length).toBe(65288);
    expect(readUint16(bytes, 256 + 127 * 512 + 2)).toBe(0xff00);
    for (let phase = 0; phase < 512; phase += 4) {
      const markers = (markedSizeBytes(phase, size) - size - leadingMarkerBytes(phase)) / 4;
      expect(markers).toBeLessThanOrEqual(128);
    }
  });

  it('RESERVED and the two low bits of FPDUPTR are ignored [MPA-4.2-03, MPA-4.2-05]', () => {
    const bytes = marked(492, 48);
    bytes.set([0xff, 0xff, 0x00, 0x17], 20);
    expect(markersAgree(bytes, 0, 48, 492)).toBe(true);
    writeUint16(bytes, 22, 0x18);
    expect(markersAgree(bytes, 0, 48, 492)).toBe(false);
  });

  it('every marker of an FPDU is compared, the leading one too [MPA-8-04]', () => {
    const bytes = marked(0, 2000);
    expect(markersAgree(bytes, 0, 2000, 0)).toBe(true);
    for (const at of [0, 512, 1024, 1536]) {
      const before = readUint16(bytes, at + 2);
      writeUint16(bytes, at + 2, before + 4);
      expect(markersAgree(bytes, 0, 2000, 0)).toBe(false);
      writeUint16(bytes, at + 2, before);
    }
  });

  it.each([0, 4, 256, 508])(
    'stripping returns the FPDU placed at phase %i [MPA-4.3-13]',
    (phase) => {
      for (const fpduBytes of [8, 48, 504, 508, 512, 1016, 1020, 5000]) {
        const bytes = marked(phase, fpduBytes);
        const plain = Uint8Array.from({ length: fpduBytes }, (_, i) => 1 + (i % 251));
        const target = new Uint8Array(fpduBytes + 6).fill(0xa5);
        stripMarkers(bytes, 0, fpduBytes, phase, target, 3);
        expect(hexOf(target)).toBe(`a5a5a5${hexOf(plain)}a5a5a5`);
        stripMarkers(bytes, 0, fpduBytes, phase, bytes, 0);
        expect(hexOf(bytes.subarray(0, fpduBytes))).toBe(hexOf(plain));
      }
    },
  );
});
