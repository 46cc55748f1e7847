/**
 * How an RPC program is described: its procedures, the XDR of arguments and results, and its
 * upper-layer binding (RFC 8166 §6), which says what may travel as chunks.
 *
 * A description contains no client or server code: both use the same one.
 */
import type { XdrReader } from './xdr-reader.ts';
import type { XdrWriter } from './xdr-writer.ts';

/** The XDR codec of one type. */
export interface XdrCodec<T> {
  /** Writes `value`. Items named by the binding are written with the `bulk` methods. */
  encode(writer: XdrWriter, value: T): void;
  /** Reads a value; throws `XdrError`. Its bytes may be views of the message. */
  decode(reader: XdrReader): T;
}

/** The type that a codec reads. */
export type Decoded<C> = C extends XdrCodec<infer T> ? T : never;

/** XDR's void (RFC 4506 §4.16). */
export const voidCodec: XdrCodec<void> = {
  encode: () => undefined,
  decode: () => undefined,
};

/** One procedure of a program. */
export interface Procedure<A, R> {
  /** Number of the procedure in its program. */
  readonly number: number;
  /** Codec of the arguments. */
  readonly args: XdrCodec<A>;
  /** Codec of the result. */
  readonly result: XdrCodec<R>;
  /**
   * Bytes of the largest result that `args` can have, excluding bulk items. The client reserves
   * this much before it calls (RFC 8166 §6.2).
   */
  resultMaxBytes(args: A): number;
  /**
   * How many items of the arguments may travel as read chunks: the first ones that the codec
   * writes with a `bulk` method. Default 0: bulk items stay in the stream.
   */
  readonly readChunksMax?: number;
  /**
   * The results that may travel as write chunks: the maximum bytes of each bulk item of the result,
   * in order. Default: none.
   */
  writeChunks?(args: A): readonly number[];
  /**
   * Whether repeating the call is harmless. Only then is a call that may have reached the server
   * resent after its connection was lost. Default false.
   */
  readonly idempotent?: boolean;
}

/** A procedure of any type. */
export type AnyProcedure = Procedure<unknown, unknown>;

/** A version of a program. */
export interface Program<P extends Readonly<Record<string, AnyProcedure>>> {
  /** For messages. */
  readonly name: string;
  /** Number of the program. */
  readonly number: number;
  /** Version of the program. */
  readonly version: number;
  /** By name. Procedure 0 does nothing and always exists, listed or not (RFC 5531 §12.1). */
  readonly procedures: P;
}

/** A program with any procedures. */
export type AnyProgram = Program<Readonly<Record<string, AnyProcedure>>>;

/** The argument type of a procedure. */
export type ArgsOf<P> = P extends Procedure<infer A, infer _> ? A : never;
/** The result type of a procedure. */
export type ResultOf<P> = P extends Procedure<infer _, infer R> ? R : never;

/** Describes a procedure; a helper for type inference. RangeError for what is not an object. */
export function defineProcedure<A, R>(procedure: Procedure<A, R>): Procedure<A, R> {
  if (typeof procedure !== 'object' || procedure === null) {
    throw new RangeError(
      `a procedure is an object with number, args and result, not ${String(procedure)}`,
    );
  }
  return procedure;
}

/**
 * Describes a program. RangeError if it is no such object, two procedures share a number, or a number
 * is not an unsigned 32-bit integer.
 */
export function defineProgram<P extends Readonly<Record<string, AnyProcedure>>>(
  program: Program<P>,
): Program<P> {
  if (typeof program?.procedures !== 'object' || program.procedures === null) {
    throw new RangeError('a program is an object with name, number, version and procedures');
  }
  const numbers = Object.values(program.procedures).map((procedure) => procedure.number);
  if (new Set(numbers).size !== numbers.length) {
    throw new RangeError(`two procedures of ${program.name} have one number`);
  }
  for (const number of [program.number, program.version, ...numbers]) {
    if (typeof number !== 'number' || number !== number >>> 0)
      throw new RangeError(`${String(number)} is not an unsigned 32-bit integer`);
  }
  return program;
}
