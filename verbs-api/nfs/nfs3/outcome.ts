/** The structure of NFS results: a status, then the fields of success or failure. */
import { enumeration, struct } from '#verbs-api/rpcrdma/core/codecs';
import type { Decoded, XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { POST_OP_ATTRIBUTES_MAX_BYTES, postOpAttributes, wccData } from './attributes.ts';
import { type Nfs3Error, Nfs3Status } from './constants.ts';

/** A result: `ok` on success, `fail` otherwise (RFC 1813 §3.3). */
export type Outcome3<O, F> =
  | { readonly status: typeof Nfs3Status.ok; readonly ok: O }
  | { readonly status: Nfs3Error; readonly fail: F };

/** nfsstat3: the values listed in RFC 1813. */
const status3 = enumeration(Object.values(Nfs3Status), 'nfsstat3');

/** The codec of an outcome, from those of its two arms. */
export function outcome<O, F>(ok: XdrCodec<O>, fail: XdrCodec<F>): XdrCodec<Outcome3<O, F>> {
  return {
    encode(writer, value) {
      writer.uint32(value.status);
      if (value.status === Nfs3Status.ok) ok.encode(writer, value.ok);
      else fail.encode(writer, value.fail);
    },
    decode(reader) {
      const status = status3.decode(reader);
      if (status === Nfs3Status.ok) return { status, ok: ok.decode(reader) };
      return { status, fail: fail.decode(reader) };
    },
  };
}

/** Attributes that a failed procedure reports for the object. */
export const objectFailure = struct({ attributes: postOpAttributes });
export type ObjectFailure = Decoded<typeof objectFailure>;

/** A failure, or a success without other fields, with the object's wcc_data. */
export const changeFailure = struct({ wcc: wccData });
export type ChangeFailure = Decoded<typeof changeFailure>;

/** Maximum bytes of a status and a post_op_attr: fits every failure of a query. */
export const OBJECT_FAILURE_MAX_BYTES = 4 + POST_OP_ATTRIBUTES_MAX_BYTES;
