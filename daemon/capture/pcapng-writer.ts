/**
 * Writes a pcapng file (draft-ietf-opsawg-pcapng): one section, one interface of Ethernet frames,
 * whole packets with microsecond time stamps. Always little-endian.
 */

const Block = { section: 0x0a0d0d0a, interface: 1, statistics: 5, enhancedPacket: 6 } as const;
const BYTE_ORDER_MAGIC = 0x1a2b3c4d;
const LINKTYPE_ETHERNET = 1;
const SNAPLEN_BYTES = 262_144;
const OPTION_END = 0;
/** Section: name of the writing application. Interface: its name. Both are UTF-8. */
const OPTION_APPLICATION = 4;
const OPTION_NAME = 2;
const OPTION_DROPPED = 5;
/** Type and length before the body, length again after it. */
const BLOCK_OVERHEAD_BYTES = 12;
const PACKET_HEADER_BYTES = 20;

export class PcapngWriter {
  readonly #write: (bytes: Uint8Array) => void;
  /** Reused to build packets: touching memory dominates the cost of fast recording. */
  #block = new Uint8Array(0);

  /** `write` takes the file piece by piece, in order; the bytes are borrowed for the call. */
  constructor(write: (bytes: Uint8Array) => void) {
    this.#write = write;
    const section = new DataView(new ArrayBuffer(16));
    section.setUint32(0, BYTE_ORDER_MAGIC, true);
    section.setUint16(4, 1, true);
    // Length of the section: unknown.
    section.setBigInt64(8, -1n, true);
    this.#writeBlock(Block.section, section, [textOption(OPTION_APPLICATION, 'iwarpd')]);
    const description = new DataView(new ArrayBuffer(8));
    description.setUint16(0, LINKTYPE_ETHERNET, true);
    description.setUint32(4, SNAPLEN_BYTES, true);
    this.#writeBlock(Block.interface, description, [textOption(OPTION_NAME, 'iwarpd')]);
  }

  /**
   * Writes a whole packet of `bytes` bytes, at `micros` since 1970. `put` must fill exactly the packet.
   */
  packet(micros: number, bytes: number, put: (packet: Uint8Array) => void): void {
    const length = BLOCK_OVERHEAD_BYTES + PACKET_HEADER_BYTES + padded(bytes);
    if (length > this.#block.length) this.#block = new Uint8Array(2 * length);
    const block = this.#block.subarray(0, length);
    const fields = new DataView(block.buffer, 0, length);
    fields.setUint32(0, Block.enhancedPacket, true);
    fields.setUint32(4, length, true);
    fields.setUint32(8, 0, true);
    putTime(fields, 12, micros);
    fields.setUint32(20, bytes, true);
    fields.setUint32(24, bytes, true);
    const at = 8 + PACKET_HEADER_BYTES;
    put(block.subarray(at, at + bytes));
    block.fill(0, at + bytes, length - 4);
    fields.setUint32(length - 4, length, true);
    this.#write(block);
  }

  /** Records how many packets are missing from the file, at `micros` since 1970. */
  statistics(micros: number, droppedPackets: number): void {
    const body = new DataView(new ArrayBuffer(12));
    putTime(body, 4, micros);
    const dropped = new Uint8Array(12);
    const fields = new DataView(dropped.buffer);
    fields.setUint16(0, OPTION_DROPPED, true);
    fields.setUint16(2, 8, true);
    fields.setBigUint64(4, BigInt(droppedPackets), true);
    this.#writeBlock(Block.statistics, body, [dropped]);
  }

  #writeBlock(type: number, body: DataView, options: readonly Uint8Array[]): void {
    const end = new Uint8Array(4);
    new DataView(end.buffer).setUint16(0, OPTION_END, true);
    const parts = [new Uint8Array(body.buffer), ...options, end];
    const length = parts.reduce((sum, part) => sum + part.length, BLOCK_OVERHEAD_BYTES);
    const block = new Uint8Array(length);
    const fields = new DataView(block.buffer);
    fields.setUint32(0, type, true);
    fields.setUint32(4, length, true);
    let at = 8;
    for (const part of parts) {
      block.set(part, at);
      at += part.length;
    }
    fields.setUint32(at, length, true);
    this.#write(block);
  }
}

/** Writes a time in microseconds as upper and lower half. */
function putTime(fields: DataView, at: number, micros: number): void {
  fields.setUint32(at, Math.floor(micros / 2 ** 32), true);
  fields.setUint32(at + 4, micros % 2 ** 32, true);
}

function textOption(code: number, text: string): Uint8Array {
  const bytes = new Uint8Array(4 + padded(text.length));
  const fields = new DataView(bytes.buffer);
  fields.setUint16(0, code, true);
  fields.setUint16(2, text.length, true);
  for (let index = 0; index < text.length; index++) bytes[4 + index] = text.charCodeAt(index);
  return bytes;
}

function padded(bytes: number): number {
  return (bytes + 3) & ~3;
}
