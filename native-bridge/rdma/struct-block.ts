/** Memory of C structs: our own blocks, and reading structs of a library. */
import koffi from 'koffi';
import { addressOf, libc, type NumberCall } from '../libc/libc.ts';
import { type FieldName, fieldOf, LAYOUTS, type StructName, sizeOf } from './layouts.ts';

const memcpy = libc.func(
  'uint64_t memcpy(uint64_t to, uint64_t from, uint64_t length)',
) as NumberCall;

/** Typed arrays of at most 64 bytes may be in V8's heap, where the collector moves them. */
const BLOCK_MIN_BYTES = 128;

/**
 * Keeps the most recent blocks alive. A block must outlive the call that gets its address, but to the
 * garbage collector an address is a number, not a reference. No call uses more than a few.
 */
const recentBlocks: Block[] = [];
const RECENT_BLOCKS = 64;
let nextRecent = 0;

/** Bytes outside V8's heap, which do not move and stay alive at least for the next calls. */
export class Block {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** Address of the first byte. */
  readonly address: number;

  constructor(lengthBytes: number) {
    const buffer = new ArrayBuffer(Math.max(lengthBytes, BLOCK_MIN_BYTES));
    this.bytes = new Uint8Array(buffer);
    this.view = new DataView(buffer);
    this.address = Number(addressOf(this.bytes));
    recentBlocks[nextRecent] = this;
    nextRecent = (nextRecent + 1) % RECENT_BLOCKS;
  }
}

/** One C struct in our memory. Pointers and 64-bit fields are numbers up to 2^53. */
export class StructBlock<S extends StructName> extends Block {
  readonly #struct: S;

  constructor(struct: S) {
    super(sizeOf(struct));
    this.#struct = struct;
  }

  load(address: number): this {
    memcpy(this.address, address, LAYOUTS[this.#struct].size);
    return this;
  }

  /** An unsigned field. */
  get(field: FieldName<S>): number {
    const [offset, lengthBytes] = fieldOf(this.#struct, field);
    return readUnsigned(this.view, offset, lengthBytes);
  }

  /** A signed 32-bit field. */
  getSigned(field: FieldName<S>): number {
    return this.view.getInt32(fieldOf(this.#struct, field)[0], true);
  }

  /** The bytes of a field. Valid until the block changes. */
  getBytes(field: FieldName<S>): Uint8Array {
    const [offset, lengthBytes] = fieldOf(this.#struct, field);
    return this.bytes.subarray(offset, offset + lengthBytes);
  }

  /** A zero-terminated text. */
  getText(field: FieldName<S>): string {
    const bytes = this.getBytes(field);
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  }

  /** Sets an unsigned field, truncated to its size. */
  set(field: FieldName<S>, value: number): this {
    const [offset, lengthBytes] = fieldOf(this.#struct, field);
    writeUnsigned(this.view, offset, lengthBytes, value);
    return this;
  }
}

/** Reads one field of a struct that a library owns. The struct must exist. */
export function peek<S extends StructName>(
  struct: S,
  field: FieldName<S>,
  address: number,
): number {
  const [offset, lengthBytes] = fieldOf(struct, field);
  const at = BigInt(address + offset);
  switch (lengthBytes) {
    case 1:
      return koffi.decode.uint8(at);
    case 2:
      return koffi.decode.uint16(at);
    case 4:
      return koffi.decode.uint32(at);
    default:
      return Number(koffi.decode.uint64(at));
  }
}

/** A copy of `lengthBytes` bytes that a library owns. */
export function copyOut(address: number, lengthBytes: number): Uint8Array {
  const block = new Block(lengthBytes);
  if (lengthBytes > 0) memcpy(block.address, address, lengthBytes);
  return block.bytes.subarray(0, lengthBytes);
}

export function pointerAt(address: number): number {
  return Number(koffi.decode.uint64(BigInt(address)));
}

function readUnsigned(view: DataView, offset: number, lengthBytes: number): number {
  switch (lengthBytes) {
    case 1:
      return view.getUint8(offset);
    case 2:
      return view.getUint16(offset, true);
    case 4:
      return view.getUint32(offset, true);
    default:
      return Number(view.getBigUint64(offset, true));
  }
}

function writeUnsigned(view: DataView, offset: number, lengthBytes: number, value: number): void {
  switch (lengthBytes) {
    case 1:
      view.setUint8(offset, value);
      break;
    case 2:
      view.setUint16(offset, value, true);
      break;
    case 4:
      view.setUint32(offset, value, true);
      break;
    default:
      view.setBigUint64(offset, BigInt(value), true);
  }
}
