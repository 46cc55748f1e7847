/** How every result of NFS is built: a status, then what belongs to success or to failure. */
import type { XdrCodec } from '../core/program.ts';
import { XdrError, type XdrReader } from '../core/xdr-reader.ts';
import {
  type Attributes3,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  readPostOpAttributes,
  readWccData,
  type WccData3,
  writePostOpAttributes,
  writeWccData,
} from './attributes.ts';
import { isNfs3Status, type Nfs3Error, Nfs3Status } from './constants.ts';

/** A result: `ok` when it went well, `fail` otherwise (RFC 1813 §3.3). */
export type Outcome3<O, F> =
  | { readonly status: typeof Nfs3Status.ok; readonly ok: O }
  | { readonly status: Nfs3Error; readonly fail: F };

/** What a failed procedure still tells of the object. */
export interface ObjectFailure {
  readonly attributes: Attributes3 | undefined;
}

/** What a failed procedure still tells of the object or directory that it was to change. */
export interface ChangeFailure {
  readonly wcc: WccData3;
}

/** The XDR of an outcome, made of that of its two arms. */
export function outcomeCodec<O, F>(ok: XdrCodec<O>, fail: XdrCodec<F>): XdrCodec<Outcome3<O, F>> {
  return {
    encode(writer, value) {
      writer.uint32(value.status);
      if (value.status === Nfs3Status.ok) ok.encode(writer, value.ok);
      else fail.encode(writer, value.fail);
    },
    decode(reader) {
      const status = readStatus(reader);
      if (status === Nfs3Status.ok) return { status, ok: ok.decode(reader) };
      return { status, fail: fail.decode(reader) };
    },
  };
}

/** nfsstat3. Throws `XdrError` for a number that RFC 1813 does not list. */
export function readStatus(reader: XdrReader): Nfs3Status {
  const value = reader.uint32();
  if (!isNfs3Status(value)) throw new XdrError(`${value} is no status of NFS`);
  return value;
}

/** A failure with the attributes of the object (post_op_attr). */
export const objectFailureCodec: XdrCodec<ObjectFailure> = {
  encode: (writer, { attributes }) => writePostOpAttributes(writer, attributes),
  decode: (reader) => ({ attributes: readPostOpAttributes(reader) }),
};

/** A failure, or a success that tells nothing else, with wcc_data. */
export const changeFailureCodec: XdrCodec<ChangeFailure> = {
  encode: (writer, { wcc }) => writeWccData(writer, wcc),
  decode: (reader) => ({ wcc: readWccData(reader) }),
};

/** Octets of a status and a post_op_attr at most: what every failure of a query fits in. */
export const OBJECT_FAILURE_MAX_BYTES = 4 + POST_OP_ATTRIBUTES_MAX_BYTES;
