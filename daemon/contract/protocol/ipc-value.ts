/**
 * Values on the control plane of the IPC: a subset of CBOR (RFC 8949), since it is self-describing,
 * has byte strings and 64-bit integers, and any CBOR tool can show it.
 *
 * | value              | encoding                                                     |
 * | ------------------ | ------------------------------------------------------------ |
 * | integer (safe)     | major types 0 and 1                                          |
 * | other number       | float64                                                      |
 * | bigint 0 … 2^64−1  | tag 2 (bignum), so that it never turns into a number         |
 * | Uint8Array, string | major types 2 and 3                                          |
 * | array, object      | major types 4 and 5, definite lengths, text keys             |
 * | simple             | false, true, null, undefined                                 |
 *
 * Decoders get hostile input: every length is checked against the bytes present, nesting is limited,
 * and no count alone causes an allocation.
 */

/** A value that can cross the IPC. */
export type IpcValue =
  | undefined
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly IpcValue[]
  | { readonly [key: string]: IpcValue };

/** The other side sent bytes that are not a valid frame, greeting or value of this protocol. */
export class IpcFormatError extends Error {
  override readonly name = 'IpcFormatError';
}

/** Nesting of arrays and objects that a value may have. */
export const VALUE_DEPTH_MAX = 16;

const U64_MAX = 0xffff_ffff_ffff_ffffn;
const TWO_32 = 0x1_0000_0000;

/**
 * Encodes a value after `headBytes` zeros that the caller fills. Throws RangeError for values
 * outside the subset, which is the caller's bug.
 */
export function encodeValue(value: IpcValue, headBytes = 0): Uint8Array {
  WRITER.begin(headBytes);
  WRITER.value(value, 0);
  return WRITER.finish();
}

/**
 * Like `encodeValue`, but in consecutive parts, each with up to `itemsMax` items of a long array: of the
 * value itself, or of an array in the object. Yields all parts but the last, which it returns. A part is
 * encoded when it is requested; other values may be encoded in between.
 */
export function* encodeInParts(
  value: IpcValue,
  headBytes: number,
  itemsMax: number,
): Generator<Uint8Array, Uint8Array> {
  WRITER.begin(headBytes);
  yield* encodeLong(value, 0, itemsMax);
  return WRITER.finish();
}

function* encodeLong(
  value: IpcValue,
  depth: number,
  itemsMax: number,
): Generator<Uint8Array, void> {
  const isObject = typeof value === 'object' && value !== null && !(value instanceof Uint8Array);
  if (isObject && isArray(value) && value.length > itemsMax) {
    WRITER.arrayHead(value.length);
    for (let first = 0; first < value.length; first += itemsMax) {
      if (first > 0) {
        yield WRITER.finish();
        WRITER.begin(0);
      }
      for (const item of value.slice(first, first + itemsMax)) WRITER.value(item, depth + 1);
    }
  } else if (isObject && !isArray(value) && depth === 0) {
    const keys = Object.keys(value);
    WRITER.mapHead(keys.length);
    for (const key of keys) {
      WRITER.value(key, depth + 1);
      yield* encodeLong(value[key], depth + 1, itemsMax);
    }
  } else WRITER.value(value, depth);
}

/** Decodes one value that fills `bytes` exactly. Throws `IpcFormatError`. The result borrows nothing. */
export function decodeValue(bytes: Uint8Array): IpcValue {
  const reader = new ValueReader(bytes);
  const value = reader.value(0);
  reader.expectEnd();
  return value;
}

/** The UTF-8 bytes of a string; lone surrogates become U+FFFD. */
export function encodeText(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const raw = character.codePointAt(0) ?? 0xfffd;
    const code = raw >= 0xd800 && raw <= 0xdfff ? 0xfffd : raw;
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 0x3f));
    else if (code < 0x1_0000) {
      bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    } else {
      bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f));
      bytes.push(0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    }
  }
  return Uint8Array.from(bytes);
}

/** The string of UTF-8 bytes. Throws `IpcFormatError` for anything that is not valid UTF-8. */
export function decodeText(bytes: Uint8Array): string {
  let text = '';
  let at = 0;
  while (at < bytes.length) {
    const lead = bytes[at] ?? 0;
    const sizeBytes = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (sizeBytes === 0 || lead > 0xf4) throw new IpcFormatError('text is not UTF-8');
    let code = sizeBytes === 1 ? lead : lead & (0xff >> (sizeBytes + 1));
    for (let i = 1; i < sizeBytes; i++) {
      const next = bytes[at + i] ?? 0;
      if ((next & 0xc0) !== 0x80) throw new IpcFormatError('text is not UTF-8');
      code = (code << 6) | (next & 0x3f);
    }
    const overlong = (sizeBytes === 3 && code < 0x800) || (sizeBytes === 4 && code < 0x1_0000);
    if (overlong || code > 0x10_ffff || (code >= 0xd800 && code <= 0xdfff)) {
      throw new IpcFormatError('text is not UTF-8');
    }
    text += String.fromCodePoint(code);
    at += sizeBytes;
  }
  return text;
}

const Major = { unsigned: 0, negative: 1, bytes: 2, text: 3, array: 4, map: 5, tag: 6, simple: 7 };
const TAG_BIGNUM = 2;
const SIMPLE_FALSE = 0xf4;
const SIMPLE_TRUE = 0xf5;
const SIMPLE_NULL = 0xf6;
const SIMPLE_UNDEFINED = 0xf7;
const FLOAT64 = 0xfb;

/**
 * Values are encoded one after the other into shared arrays: a message is too short to be worth a
 * separate array, and messages that leave together lie next to each other.
 */
const SLAB_BYTES = 16_384;
/** Least room at the end of an array for another value. */
const ROOM_MIN_BYTES = 512;

class ValueWriter {
  #bytes = new Uint8Array(SLAB_BYTES);
  #fields = new DataView(this.#bytes.buffer);
  /** Start of the value, and its end so far. */
  #start = 0;
  #length = 0;

  begin(headBytes: number): void {
    const fits = this.#start + ROOM_MIN_BYTES <= this.#bytes.length;
    // The array of a long value is as long as the value; short values must not keep it.
    if (!fits || this.#bytes.length > SLAB_BYTES) this.#moveTo(SLAB_BYTES, 0);
    this.#length = this.#start;
    this.#reserve(headBytes);
    this.#length += headBytes;
    // An earlier value may have failed here.
    this.#bytes.fill(0, this.#start, this.#length);
  }

  finish(): Uint8Array {
    const bytes = this.#bytes.subarray(this.#start, this.#length);
    this.#start = this.#length;
    return bytes;
  }

  /** Begins an array, whose items follow. */
  arrayHead(count: number): void {
    this.#head(Major.array, count);
  }

  /** Begins an object: a text and a value for each of its keys follow. */
  mapHead(count: number): void {
    this.#head(Major.map, count);
  }

  value(value: IpcValue, depth: number): void {
    if (depth > VALUE_DEPTH_MAX) throw new RangeError('value nested too deeply');
    if (value === undefined) this.#byte(SIMPLE_UNDEFINED);
    else if (value === null) this.#byte(SIMPLE_NULL);
    else if (typeof value === 'boolean') this.#byte(value ? SIMPLE_TRUE : SIMPLE_FALSE);
    else if (typeof value === 'number') this.#number(value);
    else if (typeof value === 'bigint') this.#bignum(value);
    else if (typeof value === 'string') this.#text(value);
    else if (value instanceof Uint8Array) this.#string(Major.bytes, value);
    else if (isArray(value)) {
      this.arrayHead(value.length);
      for (const item of value) this.value(item, depth + 1);
    } else {
      const keys = Object.keys(value);
      this.mapHead(keys.length);
      for (const key of keys) {
        this.#text(key);
        this.value(value[key], depth + 1);
      }
    }
  }

  #text(text: string): void {
    const { length } = text;
    if (!isAscii(text)) {
      this.#string(Major.text, encodeText(text));
      return;
    }
    this.#head(Major.text, length);
    this.#reserve(length);
    for (let i = 0; i < length; i++) this.#bytes[this.#length + i] = text.charCodeAt(i);
    this.#length += length;
  }

  #string(major: number, bytes: Uint8Array): void {
    this.#head(major, bytes.length);
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #number(value: number): void {
    if (Number.isSafeInteger(value)) {
      if (value >= 0) this.#head(Major.unsigned, value);
      else this.#head(Major.negative, -1 - value);
      return;
    }
    this.#byte(FLOAT64);
    this.#reserve(8);
    this.#fields.setFloat64(this.#length, value);
    this.#length += 8;
  }

  #bignum(value: bigint): void {
    if (value < 0n || value > U64_MAX) throw new RangeError('integer outside 0 … 2^64-1');
    this.#head(Major.tag, TAG_BIGNUM);
    this.#head(Major.bytes, 8);
    this.#reserve(8);
    this.#fields.setBigUint64(this.#length, value);
    this.#length += 8;
  }

  #head(major: number, argument: number): void {
    const type = major << 5;
    this.#reserve(9);
    if (argument < 24) this.#byte(type | argument);
    else if (argument < 0x100) {
      this.#byte(type | 24);
      this.#byte(argument);
    } else if (argument < 0x1_0000) {
      this.#byte(type | 25);
      this.#fields.setUint16(this.#length, argument);
      this.#length += 2;
    } else if (argument < TWO_32) {
      this.#byte(type | 26);
      this.#fields.setUint32(this.#length, argument);
      this.#length += 4;
    } else {
      this.#byte(type | 27);
      this.#fields.setUint32(this.#length, Math.floor(argument / TWO_32));
      this.#fields.setUint32(this.#length + 4, argument >>> 0);
      this.#length += 8;
    }
  }

  #byte(byte: number): void {
    this.#reserve(1);
    this.#bytes[this.#length++] = byte;
  }

  #reserve(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return;
    const taken = this.#length - this.#start;
    this.#moveTo(Math.max(SLAB_BYTES, (taken + bytes) * 2), taken);
  }

  /** Continues in a new array, with the `taken` bytes that the value has so far. */
  #moveTo(lengthBytes: number, taken: number): void {
    const bytes = new Uint8Array(lengthBytes);
    bytes.set(this.#bytes.subarray(this.#start, this.#start + taken));
    this.#bytes = bytes;
    this.#fields = new DataView(bytes.buffer);
    this.#start = 0;
    this.#length = taken;
  }
}

/** Encoding a value calls nothing that encodes another one. */
const WRITER = new ValueWriter();

class ValueReader {
  readonly #bytes: Uint8Array;
  readonly #fields: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  expectEnd(): void {
    if (this.#at !== this.#bytes.length) throw new IpcFormatError('bytes after the value');
  }

  value(depth: number): IpcValue {
    if (depth > VALUE_DEPTH_MAX) throw new IpcFormatError('value nested too deeply');
    const initial = this.#takeByte();
    const major = initial >> 5;
    if (major === Major.simple) return this.#simple(initial);
    const argument = this.#argument(initial & 31);
    switch (major) {
      case Major.unsigned:
        return argument;
      case Major.negative:
        if (argument === Number.MAX_SAFE_INTEGER) throw new IpcFormatError('integer too large');
        return -1 - argument;
      case Major.bytes:
        return this.#take(argument).slice();
      case Major.text:
        return this.#text(argument);
      case Major.array:
        return this.#array(argument, depth);
      case Major.map:
        return this.#map(argument, depth);
      default:
        return this.#bignum(argument);
    }
  }

  /** Names and errno codes repeat: a short text is looked up before it is decoded. */
  #text(lengthBytes: number): string {
    if (lengthBytes > KNOWN_TEXT_MAX_BYTES) return decodeText(this.#take(lengthBytes));
    const at = this.#at;
    this.#skip(lengthBytes);
    let hash = lengthBytes;
    for (let i = 0; i < lengthBytes; i++) {
      hash = (Math.imul(hash, 31) + (this.#bytes[at + i] ?? 0)) & 0xffff;
    }
    const slot = hash % KNOWN_TEXTS;
    const known = knownTexts[slot];
    if (known !== undefined && this.#isText(known, at, lengthBytes)) return known;
    const text = decodeText(this.#bytes.subarray(at, at + lengthBytes));
    if (isAscii(text)) knownTexts[slot] = text;
    return text;
  }

  /** `known` is ASCII: one byte for each of its characters. */
  #isText(known: string, at: number, lengthBytes: number): boolean {
    if (known.length !== lengthBytes) return false;
    for (let i = 0; i < lengthBytes; i++) {
      if (known.charCodeAt(i) !== this.#bytes[at + i]) return false;
    }
    return true;
  }

  #array(count: number, depth: number): IpcValue {
    this.#expectItems(count);
    const items: IpcValue[] = [];
    for (let i = 0; i < count; i++) items.push(this.value(depth + 1));
    return items;
  }

  #map(count: number, depth: number): IpcValue {
    this.#expectItems(count * 2);
    const map: { [key: string]: IpcValue } = {};
    for (let i = 0; i < count; i++) {
      const key = this.value(depth + 1);
      if (typeof key !== 'string') throw new IpcFormatError('key is not text');
      if (key === '__proto__' || Object.hasOwn(map, key)) {
        throw new IpcFormatError('key is forbidden or duplicate');
      }
      map[key] = this.value(depth + 1);
    }
    return map;
  }

  #bignum(tag: number): IpcValue {
    if (tag !== TAG_BIGNUM) throw new IpcFormatError('unknown tag');
    const bytes = this.value(VALUE_DEPTH_MAX);
    if (!(bytes instanceof Uint8Array) || bytes.length > 8) {
      throw new IpcFormatError('integer longer than 64 bits');
    }
    let value = 0n;
    for (const byte of bytes) value = (value << 8n) | BigInt(byte);
    return value;
  }

  #simple(initial: number): IpcValue {
    switch (initial) {
      case SIMPLE_FALSE:
        return false;
      case SIMPLE_TRUE:
        return true;
      case SIMPLE_NULL:
        return null;
      case SIMPLE_UNDEFINED:
        return undefined;
      case FLOAT64: {
        const at = this.#at;
        this.#skip(8);
        return this.#fields.getFloat64(at);
      }
      default:
        throw new IpcFormatError('unknown simple value');
    }
  }

  #argument(short: number): number {
    if (short < 24) return short;
    const at = this.#at;
    switch (short) {
      case 24:
        return this.#takeByte();
      case 25:
        this.#skip(2);
        return this.#fields.getUint16(at);
      case 26:
        this.#skip(4);
        return this.#fields.getUint32(at);
      case 27: {
        this.#skip(8);
        const value = this.#fields.getUint32(at) * TWO_32 + this.#fields.getUint32(at + 4);
        if (value > Number.MAX_SAFE_INTEGER) throw new IpcFormatError('integer too large');
        return value;
      }
      default:
        throw new IpcFormatError('indefinite or reserved length');
    }
  }

  /** Each item takes at least one byte, so a count beyond the remaining bytes is invalid. */
  #expectItems(count: number): void {
    if (count > this.#bytes.length - this.#at) throw new IpcFormatError('value is cut off');
  }

  #take(bytes: number): Uint8Array {
    this.#skip(bytes);
    return this.#bytes.subarray(this.#at - bytes, this.#at);
  }

  #takeByte(): number {
    this.#skip(1);
    return this.#bytes[this.#at - 1] ?? 0;
  }

  #skip(bytes: number): void {
    if (bytes > this.#bytes.length - this.#at) throw new IpcFormatError('value is cut off');
    this.#at += bytes;
  }
}

/** Recently decoded texts, by hash of their bytes; a text with the same hash replaces the entry. */
const KNOWN_TEXTS = 256;
const KNOWN_TEXT_MAX_BYTES = 32;
const knownTexts: (string | undefined)[] = new Array(KNOWN_TEXTS).fill(undefined);

function isAscii(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) >= 0x80) return false;
  return true;
}

/** `Array.isArray` that keeps the element type of a readonly array. */
function isArray(value: object): value is readonly IpcValue[] {
  return Array.isArray(value);
}
