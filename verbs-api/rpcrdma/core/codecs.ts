/** Composes XDR types from smaller ones (RFC 4506 §4): one description both encodes and decodes. */
import type { XdrCodec } from './program.ts';
import { XdrError } from './xdr-reader.ts';

/** An unsigned integer (RFC 4506 §4.2). */
export const uint32: XdrCodec<number> = {
  encode: (writer, value) => writer.uint32(value),
  decode: (reader) => reader.uint32(),
};

/** An unsigned hyper integer (RFC 4506 §4.5). */
export const uint64: XdrCodec<bigint> = {
  encode: (writer, value) => writer.uint64(value),
  decode: (reader) => reader.uint64(),
};

/** A boolean (RFC 4506 §4.4). */
export const bool: XdrCodec<boolean> = {
  encode: (writer, value) => writer.bool(value),
  decode: (reader) => reader.bool(),
};

/** An enumeration (RFC 4506 §4.3) of these values; the reader rejects others. */
export function enumeration<V extends number>(values: readonly V[], what: string): XdrCodec<V> {
  const known: ReadonlySet<number> = new Set(values);
  const isKnown = (value: number): value is V => known.has(value);
  return {
    encode: (writer, value) => writer.uint32(value),
    decode(reader) {
      const value = reader.uint32();
      if (!isKnown(value)) throw new XdrError(`${value} is not a ${what}`);
      return value;
    },
  };
}

/** Opaque data of a known length (RFC 4506 §4.9), decoded as a view. */
export function opaqueFixed(lengthBytes: number): XdrCodec<Uint8Array> {
  return {
    encode: (writer, bytes) => writer.opaqueFixed(bytes),
    decode: (reader) => reader.opaqueFixed(lengthBytes),
  };
}

/** Opaque data (RFC 4506 §4.10), at most `maxBytes` when decoded; decoded as a view. */
export function opaque(maxBytes: number): XdrCodec<Uint8Array> {
  return {
    encode: (writer, bytes) => writer.opaque(bytes),
    decode: (reader) => reader.opaque(maxBytes),
  };
}

/** Like `opaque`, but may travel as a chunk if the binding allows it. */
export function bulk(maxBytes: number): XdrCodec<Uint8Array> {
  return {
    encode: (writer, bytes) => writer.bulk(bytes),
    decode: (reader) => reader.bulk(maxBytes),
  };
}

/** Optional data (RFC 4506 §4.19); undefined means absent. */
export function optional<T>(type: XdrCodec<T>): XdrCodec<T | undefined> {
  return {
    encode: (writer, value) => writer.optional(value, type.encode),
    decode: (reader) => reader.optional(type.decode),
  };
}

/** An array (RFC 4506 §4.13), at most `maxCount` elements when decoded. */
export function array<T>(maxCount: number, type: XdrCodec<T>): XdrCodec<readonly T[]> {
  return {
    encode: (writer, elements) => writer.array(elements, type.encode),
    decode: (reader) => reader.array(maxCount, type.decode),
  };
}

/** A linked list (RFC 4506 §4.19), at most `maxCount` elements when decoded. */
export function chain<T>(maxCount: number, type: XdrCodec<T>): XdrCodec<readonly T[]> {
  return {
    encode: (writer, elements) => writer.chain(elements, type.encode),
    decode: (reader) => reader.chain(maxCount, type.decode),
  };
}

/** A structure (RFC 4506 §4.14): its fields, in declaration order. */
export function struct<T extends object>(
  fields: {
    readonly [K in keyof T]-?: XdrCodec<T[K]>;
  },
): XdrCodec<T> {
  const listed: readonly [string, XdrCodec<unknown>][] = Object.entries(fields);
  return {
    encode(writer, value) {
      const values = value as Readonly<Record<string, unknown>>;
      for (const [name, type] of listed) type.encode(writer, values[name]);
    },
    decode(reader) {
      const values: Record<string, unknown> = {};
      for (const [name, type] of listed) values[name] = type.decode(reader);
      // The types of the fields make up `T`.
      return values as T;
    },
  };
}
