/**
 * Reads packets from a capture file, pcap or pcapng, incrementally.
 *
 * Sources: the pcap and pcapng file formats (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
 * Supports both byte orders, micro- and nanoseconds, and multiple sections and interfaces. Skips
 * blocks without packets. The file is untrusted: lengths are checked before anything is buffered.
 */
export class CaptureError extends Error {
  override readonly name = 'CaptureError';
  /** Offset in the file, in bytes. */
  readonly offset: number;

  constructor(text: string, offset: number) {
    super(`${text} at byte ${offset}`);
    this.offset = offset;
  }
}

export interface CapturedPacket {
  /** Nanoseconds since 1970, or since the recorder's own epoch. */
  readonly timeNanos: bigint;
  /** LINKTYPE_ value of the interface. */
  readonly linkType: number;
  /** The recorded bytes; borrowed until the next call of the parser. */
  readonly bytes: Uint8Array;
  /** Length of the packet on the wire; exceeds `bytes` if the packet was truncated. */
  readonly originalBytes: number;
}

/**
 * Maximum record or block: Linux passes packets of up to 256 KiB to recorders; this leaves room.
 */
export const BLOCK_MAX_BYTES = 16 * 1024 * 1024;
/** Maximum interfaces per section; each takes a small object. */
const INTERFACES_MAX = 65_536;

const PCAP_HEADER_BYTES = 24;
const PCAP_RECORD_BYTES = 16;
const BLOCK_OVERHEAD_BYTES = 12;
const Block = { section: 0x0a0d0d0a, interface: 1, simplePacket: 3, enhancedPacket: 6 } as const;
const BYTE_ORDER_MAGIC = 0x1a2b3c4d;
const OPTION_TIME_RESOLUTION = 9;

interface Interface {
  readonly linkType: number;
  readonly snapBytes: number;
  /** Time stamp units per second. */
  readonly unitsPerSecond: bigint;
}

/** `push` bytes, then `poll` packets until it returns undefined. */
export class CaptureFileParser {
  #bytes: Uint8Array = new Uint8Array(0);
  #view: DataView = new DataView(new ArrayBuffer(0));
  /** Parse position in `#bytes`, and the file offset of `#bytes`. */
  #at = 0;
  #base = 0;
  #format: 'unknown' | 'pcap' | 'pcapng' = 'unknown';
  #littleEndian = true;
  #interfaces: Interface[] = [];

  /** Takes the next bytes of the file and owns them from then on. */
  push(bytes: Uint8Array): void {
    const rest = this.#bytes.subarray(this.#at);
    this.#base += this.#at;
    this.#at = 0;
    if (rest.length === 0) this.#bytes = bytes;
    else {
      this.#bytes = new Uint8Array(rest.length + bytes.length);
      this.#bytes.set(rest);
      this.#bytes.set(bytes, rest.length);
    }
    const { buffer, byteOffset, byteLength } = this.#bytes;
    this.#view = new DataView(buffer, byteOffset, byteLength);
  }

  /** The next packet, or undefined if it needs more bytes. Throws `CaptureError`. */
  poll(): CapturedPacket | undefined {
    if (this.#format === 'unknown' && !this.#takeFileHeader()) return undefined;
    return this.#format === 'pcap' ? this.#takeRecord() : this.#takeBlocks();
  }

  /** Call at the end of the file. Throws `CaptureError` if it is truncated. */
  finish(): void {
    if (this.#format === 'unknown') throw this.#error('not a pcap or pcapng file');
    if (this.#left > 0) throw this.#error('the file ends inside a record');
  }

  get #left(): number {
    return this.#bytes.length - this.#at;
  }

  #takeFileHeader(): boolean {
    if (this.#left < 4) return false;
    const magic = this.#view.getUint32(this.#at);
    if (magic === Block.section) {
      this.#format = 'pcapng';
      return true;
    }
    const kind = PCAP_MAGICS.get(magic);
    if (kind === undefined) throw this.#error('not a pcap or pcapng file');
    if (this.#left < PCAP_HEADER_BYTES) return false;
    this.#format = 'pcap';
    this.#littleEndian = kind.littleEndian;
    const snapBytes = this.#uint32(this.#at + 16);
    // The upper bits describe frame check sequences.
    const linkType = this.#uint32(this.#at + 20) & 0xffff;
    this.#interfaces = [{ linkType, snapBytes, unitsPerSecond: kind.unitsPerSecond }];
    this.#at += PCAP_HEADER_BYTES;
    return true;
  }

  #takeRecord(): CapturedPacket | undefined {
    const [source] = this.#interfaces;
    if (source === undefined || this.#left < PCAP_RECORD_BYTES) return undefined;
    const capturedBytes = this.#uint32(this.#at + 8);
    if (capturedBytes > BLOCK_MAX_BYTES)
      throw this.#error(`record too long: ${capturedBytes} bytes`);
    if (this.#left < PCAP_RECORD_BYTES + capturedBytes) return undefined;
    const seconds = BigInt(this.#uint32(this.#at));
    const units = BigInt(this.#uint32(this.#at + 4));
    const start = this.#at + PCAP_RECORD_BYTES;
    const originalBytes = this.#uint32(this.#at + 12);
    this.#at = start + capturedBytes;
    return {
      timeNanos: seconds * NANOS + (units * NANOS) / source.unitsPerSecond,
      linkType: source.linkType,
      bytes: this.#bytes.subarray(start, this.#at),
      originalBytes: Math.max(originalBytes, capturedBytes),
    };
  }

  /** Skips blocks up to the next packet. */
  #takeBlocks(): CapturedPacket | undefined {
    while (this.#left >= BLOCK_OVERHEAD_BYTES) {
      const start = this.#at;
      const type = this.#uint32(start);
      if (type === Block.section) this.#takeByteOrder(start);
      const blockBytes = this.#uint32(start + 4);
      if (blockBytes < BLOCK_OVERHEAD_BYTES || blockBytes > BLOCK_MAX_BYTES) {
        throw this.#error(`invalid block length: ${blockBytes} bytes`);
      }
      if (this.#left < blockBytes) return undefined;
      if (this.#uint32(start + blockBytes - 4) !== blockBytes) {
        throw this.#error('the two lengths of the block differ');
      }
      const packet = this.#takeBlock(type, start + 8, start + blockBytes - 4);
      this.#at = start + blockBytes;
      // Blocks are padded to 4 bytes.
      if (blockBytes % 4 !== 0) throw this.#error('the block length is not a multiple of 4');
      if (packet !== undefined) return packet;
    }
    return undefined;
  }

  #takeByteOrder(start: number): void {
    if (this.#view.getUint32(start + 8, true) === BYTE_ORDER_MAGIC) this.#littleEndian = true;
    else if (this.#view.getUint32(start + 8) === BYTE_ORDER_MAGIC) this.#littleEndian = false;
    else throw this.#error('the section has no byte-order magic');
    this.#interfaces = [];
  }

  #takeBlock(type: number, start: number, end: number): CapturedPacket | undefined {
    switch (type) {
      case Block.interface:
        this.#takeInterface(start, end);
        return undefined;
      case Block.enhancedPacket:
        return this.#enhancedPacket(start, end);
      case Block.simplePacket:
        return this.#simplePacket(start, end);
      default:
        return undefined;
    }
  }

  #takeInterface(start: number, end: number): void {
    if (end - start < 8) throw this.#error('the interface block is too short');
    if (this.#interfaces.length >= INTERFACES_MAX)
      throw this.#error(`more than ${INTERFACES_MAX} interfaces`);
    this.#interfaces.push({
      linkType: this.#uint16(start),
      snapBytes: this.#uint32(start + 4),
      unitsPerSecond: this.#timeResolution(start + 8, end),
    });
  }

  #timeResolution(start: number, end: number): bigint {
    for (let at = start; end - at >= 4; ) {
      const code = this.#uint16(at);
      const length = this.#uint16(at + 2);
      if (code === 0) break;
      if (code === OPTION_TIME_RESOLUTION && length === 1 && end - at >= 5) {
        const value = this.#view.getUint8(at + 4);
        return (value & 0x80) === 0 ? 10n ** BigInt(value) : 2n ** BigInt(value & 0x7f);
      }
      at += 4 + length + ((4 - (length % 4)) % 4);
    }
    return 1_000_000n;
  }

  #enhancedPacket(start: number, end: number): CapturedPacket {
    if (end - start < 20) throw this.#error('the packet block is too short');
    const source = this.#interfaces[this.#uint32(start)];
    if (source === undefined) throw this.#error('the packet names an unknown interface');
    const units = (BigInt(this.#uint32(start + 4)) << 32n) | BigInt(this.#uint32(start + 8));
    const capturedBytes = this.#uint32(start + 12);
    if (capturedBytes > end - start - 20) throw this.#error('the packet is longer than its block');
    return {
      timeNanos: (units * NANOS) / source.unitsPerSecond,
      linkType: source.linkType,
      bytes: this.#bytes.subarray(start + 20, start + 20 + capturedBytes),
      originalBytes: Math.max(this.#uint32(start + 16), capturedBytes),
    };
  }

  #simplePacket(start: number, end: number): CapturedPacket {
    const [source] = this.#interfaces;
    if (source === undefined) throw this.#error('the packet names an unknown interface');
    if (end - start < 4) throw this.#error('the packet block is too short');
    const originalBytes = this.#uint32(start);
    const limit = source.snapBytes === 0 ? originalBytes : source.snapBytes;
    const capturedBytes = Math.min(originalBytes, limit, end - start - 4);
    const bytes = this.#bytes.subarray(start + 4, start + 4 + capturedBytes);
    return { timeNanos: 0n, linkType: source.linkType, bytes, originalBytes };
  }

  #uint16(at: number): number {
    return this.#view.getUint16(at, this.#littleEndian);
  }

  #uint32(at: number): number {
    return this.#view.getUint32(at, this.#littleEndian);
  }

  #error(text: string): CaptureError {
    return new CaptureError(text, this.#base + this.#at);
  }
}

const NANOS = 1_000_000_000n;
/** The first four bytes of a pcap file, read big-endian, encode byte order and units. */
const PCAP_MAGICS: ReadonlyMap<
  number,
  { readonly littleEndian: boolean; readonly unitsPerSecond: bigint }
> = new Map([
  [0xa1b2c3d4, { littleEndian: false, unitsPerSecond: 1_000_000n }],
  [0xd4c3b2a1, { littleEndian: true, unitsPerSecond: 1_000_000n }],
  [0xa1b23c4d, { littleEndian: false, unitsPerSecond: NANOS }],
  [0x4d3cb2a1, { littleEndian: true, unitsPerSecond: NANOS }],
]);
