/**
 * How an RPC program is described: its procedures, the XDR of arguments and results, and its
 * upper-layer binding (RFC 8166 §6), which says what may travel as chunks.
 *
 * A description holds no code of client or server: both work from the same one.
 */
import type { XdrReader } from './xdr-reader.ts';
import type { XdrWriter } from './xdr-writer.ts';

/** The XDR of one type. */
export interface XdrCodec<T> {
  /** Writes `value`. Items that the binding names are written by the `bulk` methods. */
  encode(writer: XdrWriter, value: T): void;
  /** Reads a value; throws `XdrError`. Octets in it may be views of the message. */
  decode(reader: XdrReader): T;
}

/** XDR's void (RFC 4506 §4.16). */
export const voidCodec: XdrCodec<void> = {
  encode: () => undefined,
  decode: () => undefined,
};

/** One procedure of a program. */
export interface Procedure<A, R> {
  readonly number: number;
  readonly args: XdrCodec<A>;
  readonly result: XdrCodec<R>;
  /**
   * Octets of the largest result that `args` can have, without the octets of its bulk items: what
   * the client makes room for before it calls (RFC 8166 §6.2).
   */
  resultMaxBytes(args: A): number;
  /**
   * How many items of the arguments may travel as read chunks: the first ones that the codec
   * writes with a `bulk` method. Default 0: bulk items stay in the stream.
   */
  readonly readChunksMax?: number;
  /**
   * The results that may travel as write chunks: for each bulk item of the result, in order, the
   * octets that it may have at most. Default: none.
   */
  writeChunks?(args: A): readonly number[];
  /**
   * Doing it twice is as good as once. A call that may have reached the server before its
   * connection was lost is sent again only then. Default false.
   */
  readonly idempotent?: boolean;
}

/** A procedure, whatever its types. */
export type AnyProcedure = Procedure<unknown, unknown>;

/** A version of a program. */
export interface Program<P extends Readonly<Record<string, AnyProcedure>>> {
  /** For messages to people. */
  readonly name: string;
  readonly number: number;
  readonly version: number;
  /** By name. Procedure 0 does nothing and is always there, listed or not (RFC 5531 §12.1). */
  readonly procedures: P;
}

/** A program, whatever its procedures. */
export type AnyProgram = Program<Readonly<Record<string, AnyProcedure>>>;

/** What a procedure takes. */
export type ArgsOf<P> = P extends Procedure<infer A, infer _> ? A : never;
/** What a procedure gives. */
export type ResultOf<P> = P extends Procedure<infer _, infer R> ? R : never;

/** Describes a procedure; for the inference of its types. */
export function defineProcedure<A, R>(procedure: Procedure<A, R>): Procedure<A, R> {
  return procedure;
}

/**
 * Describes a program. RangeError when two procedures have one number, or a number is no unsigned
 * 32-bit integer.
 */
export function defineProgram<P extends Readonly<Record<string, AnyProcedure>>>(
  program: Program<P>,
): Program<P> {
  const numbers = Object.values(program.procedures).map((procedure) => procedure.number);
  if (new Set(numbers).size !== numbers.length) {
    throw new RangeError(`two procedures of ${program.name} have one number`);
  }
  for (const number of [program.number, program.version, ...numbers]) {
    if (number !== number >>> 0) throw new RangeError(`${number} is no unsigned 32-bit integer`);
  }
  return program;
}
