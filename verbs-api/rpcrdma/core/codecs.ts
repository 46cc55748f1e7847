/**
 * XDR types put together from smaller ones (RFC 4506 §4): a type is described once, and written
 * and read by that description.
 */
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

/** An enumeration (RFC 4506 §4.3) of these values; another one is "no `what`" to the reader. */
export function enumeration<V extends number>(values: readonly V[], what: string): XdrCodec<V> {
  const known: ReadonlySet<number> = new Set(values);
  const isKnown = (value: number): value is V => known.has(value);
  return {
    encode: (writer, value) => writer.uint32(value),
    decode(reader) {
      const value = reader.uint32();
      if (!isKnown(value)) throw new XdrError(`${value} is no ${what}`);
      return value;
    },
  };
}

/** Opaque data of a known length (RFC 4506 §4.9); read as a view. */
export function opaqueFixed(lengthBytes: number): XdrCodec<Uint8Array> {
  return {
    encode: (writer, octets) => writer.opaqueFixed(octets),
    decode: (reader) => reader.opaqueFixed(lengthBytes),
  };
}

/** Opaque data (RFC 4506 §4.10) of which a reader takes `maxBytes` at most; read as a view. */
export function opaque(maxBytes: number): XdrCodec<Uint8Array> {
  return {
    encode: (writer, octets) => writer.opaque(octets),
    decode: (reader) => reader.opaque(maxBytes),
  };
}

/** The same where the binding lets it travel as a chunk. */
export function bulk(maxBytes: number): XdrCodec<Uint8Array> {
  return {
    encode: (writer, octets) => writer.bulk(octets),
    decode: (reader) => reader.bulk(maxBytes),
  };
}

/** Optional data (RFC 4506 §4.19); undefined is absent. */
export function optional<T>(type: XdrCodec<T>): XdrCodec<T | undefined> {
  return {
    encode: (writer, value) => writer.optional(value, type.encode),
    decode: (reader) => reader.optional(type.decode),
  };
}

/** An array (RFC 4506 §4.13) of which a reader takes `maxCount` elements at most. */
export function array<T>(maxCount: number, type: XdrCodec<T>): XdrCodec<readonly T[]> {
  return {
    encode: (writer, elements) => writer.array(elements, type.encode),
    decode: (reader) => reader.array(maxCount, type.decode),
  };
}

/** A linked list (RFC 4506 §4.19) of which a reader takes `maxCount` elements at most. */
export function chain<T>(maxCount: number, type: XdrCodec<T>): XdrCodec<readonly T[]> {
  return {
    encode: (writer, elements) => writer.chain(elements, type.encode),
    decode: (reader) => reader.chain(maxCount, type.decode),
  };
}

/** A structure (RFC 4506 §4.14): its fields, in the order in which they stand here. */
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
      // The types of the fields make those of `T`.
      return values as T;
    },
  };
}
