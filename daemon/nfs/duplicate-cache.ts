/**
 * Answers to calls that must not be carried out twice. A client that loses its connection sends what
 * was not answered again; REMOVE would then say that there is no such file, though the first REMOVE
 * went well. Calls are told apart by client, XID, procedure and arguments.
 */
import { createHash } from 'node:crypto';
import type { Procedure } from '../../verbs-api/rpcrdma/core/program.ts';
import { XdrWriter } from '../../verbs-api/rpcrdma/core/xdr-writer.ts';
import { Nfs3Status } from '../../verbs-api/rpcrdma/nfs3/constants.ts';

/** What tells a call from others. */
export interface CallMark {
  /** The client's address without its port, which changes with the connection. */
  readonly address: string;
  readonly xid: number;
}

interface Answered {
  readonly result: unknown;
  readonly atMs: number;
}

const ANSWERS_MAX = 1024;
/** Clients give up, or have sent again, long before. */
const LIFE_MS = 120_000;

/** See the module's comment. */
export class DuplicateCache {
  readonly #answers = new Map<string, Answered>();
  readonly #writer = new XdrWriter();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** The answer that the call had, or else what `run` gives, which is remembered. */
  once<A, R extends { readonly status: number }>(
    call: CallMark,
    procedure: Procedure<A, R>,
    args: A,
    run: () => R,
  ): R {
    const key = this.#keyOf(call, procedure, args);
    const nowMs = this.#nowMs();
    const earlier = this.#answers.get(key);
    // The key holds the procedure, so the answer is one of its results.
    if (earlier !== undefined && nowMs - earlier.atMs < LIFE_MS) return earlier.result as R;
    const result = run();
    this.#answers.delete(key);
    // Nothing was done, and the client was asked to come again.
    if (result.status === Nfs3Status.jukebox) return result;
    this.#answers.set(key, { result, atMs: nowMs });
    for (const [old, { atMs }] of this.#answers) {
      if (this.#answers.size <= ANSWERS_MAX && nowMs - atMs < LIFE_MS) break;
      this.#answers.delete(old);
    }
    return result;
  }

  #keyOf<A, R>(call: CallMark, procedure: Procedure<A, R>, args: A): string {
    this.#writer.reset();
    procedure.args.encode(this.#writer, args);
    const { stream, items } = this.#writer.payload();
    // A digest, as arguments may be long and what is remembered has a bound.
    const digest = createHash('sha256').update(stream);
    for (const { octets } of items) digest.update(octets);
    return `${call.address} ${call.xid} ${procedure.number} ${digest.digest('base64')}`;
  }
}
