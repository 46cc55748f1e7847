/** Splits a pcap file into packets, to damage them one by one. */

const FILE_HEADER_BYTES = 24;
const RECORD_HEADER_BYTES = 16;

/** Frames of a little-endian pcap file; empty for any other file. */
export function readPcapFrames(file: Uint8Array): Uint8Array[] {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const frames: Uint8Array[] = [];
  if (![0xa1b2c3d4, 0xa1b23c4d].includes(view.getUint32(0, true))) return frames;
  for (let at = FILE_HEADER_BYTES; at + RECORD_HEADER_BYTES <= file.length; ) {
    const start = at + RECORD_HEADER_BYTES;
    const end = start + view.getUint32(at + 8, true);
    frames.push(file.slice(start, end));
    at = end;
  }
  return frames;
}
