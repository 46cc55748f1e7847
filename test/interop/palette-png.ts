/**
 * Reduces a screenshot to its 256 most frequent colours and a third of the bytes: Chromium writes
 * three bytes for each pixel, although a screen has few colours. PNG: ISO/IEC 15948.
 */
import { crc32, deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
const COLOURS_MAX = 256;

/** Gives a PNG a palette. `png` has 8 bits a channel, RGB or RGBA, as Chromium writes it. */
export function withPalette(png: Buffer): Buffer {
  const { width, pixels } = parsePng(png);
  const palette = frequentColours(pixels);
  const known = new Map(palette.map((colour, index) => [colour, index] as const));
  const height = pixels.length / width;
  const rows = Buffer.alloc(height * (width + 1));
  for (const [at, colour] of pixels.entries()) {
    let index = known.get(colour);
    if (index === undefined) {
      index = nearest(palette, colour);
      known.set(colour, index);
    }
    rows[at + Math.floor(at / width) + 1] = index;
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // 8 bits, with a palette.
  header.set([8, 3], 8);
  const colours = Buffer.from(palette.flatMap((c) => [c >>> 16, (c >>> 8) & 0xff, c & 0xff]));
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', header),
    chunk('PLTE', colours),
    chunk('IDAT', deflateSync(rows, { level: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** The width, and the pixels as 0xrrggbb, row by row. */
function parsePng(png: Buffer) {
  const width = png.readUInt32BE(16);
  const [depth, type] = [png[24], png[25]];
  if (depth !== 8 || (type !== 2 && type !== 6)) throw new Error('a PNG of another kind');
  const pieces: Buffer[] = [];
  for (let at = SIGNATURE.length; at < png.length; ) {
    const length = png.readUInt32BE(at);
    if (png.toString('latin1', at + 4, at + 8) === 'IDAT') {
      pieces.push(png.subarray(at + 8, at + 8 + length));
    }
    at += length + 12;
  }
  const channels = type === 2 ? 3 : 4;
  const bytes = unfiltered(inflateSync(Buffer.concat(pieces)), width * channels, channels);
  const pixels = new Uint32Array(bytes.length / channels);
  for (const index of pixels.keys()) pixels[index] = bytes.readUIntBE(index * channels, 3);
  return { width, pixels };
}

/** Undoes the filter of each row, which its first byte names. */
function unfiltered(rows: Buffer, rowBytes: number, pixelBytes: number): Buffer {
  const bytes = Buffer.alloc(rows.length - rows.length / (rowBytes + 1));
  for (let row = 0, at = 0; at < bytes.length; row += 1) {
    const filter = rows[row * (rowBytes + 1)];
    for (let column = 0; column < rowBytes; column += 1, at += 1) {
      const left = column < pixelBytes ? 0 : (bytes[at - pixelBytes] ?? 0);
      const up = bytes[at - rowBytes] ?? 0;
      const corner = column < pixelBytes ? 0 : (bytes[at - rowBytes - pixelBytes] ?? 0);
      const guess = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0;
      bytes[at] = (rows[row * (rowBytes + 1) + 1 + column] ?? 0) + guess;
    }
  }
  return bytes;
}

function paeth(left: number, up: number, corner: number): number {
  const guess = left + up - corner;
  const distances = [left, up, corner].map((value) => Math.abs(guess - value));
  return [left, up, corner][distances.indexOf(Math.min(...distances))] ?? 0;
}

function frequentColours(pixels: Uint32Array): number[] {
  const counts = new Map<number, number>();
  for (const colour of pixels) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const byCount = [...counts].sort(([, one], [, other]) => other - one);
  return byCount.slice(0, COLOURS_MAX).map(([colour]) => colour);
}

function nearest(palette: readonly number[], colour: number): number {
  const distances = palette.map((each) =>
    [16, 8, 0].reduce((sum, shift) => {
      return sum + (((each >>> shift) & 0xff) - ((colour >>> shift) & 0xff)) ** 2;
    }, 0),
  );
  return distances.indexOf(Math.min(...distances));
}

function chunk(type: string, content: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), content]);
  const framed = Buffer.alloc(named.length + 8);
  framed.writeUInt32BE(content.length, 0);
  framed.set(named, 4);
  framed.writeUInt32BE(crc32(named), named.length + 4);
  return framed;
}
