/**
 * Caches replies to calls that must not be executed twice. A client that loses its connection
 * resends unanswered calls; REMOVE would then fail with NFS3ERR_NOENT although the first one
 * succeeded. Calls are identified by client, user, XID, procedure and arguments.
 */
import { createHash } from 'node:crypto';
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import type { Procedure } from '#verbs-api/rpcrdma/core/program';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { Nfs3Status } from '../nfs3/constants.ts';
import type { Eventually } from './steps.ts';

/** Identifies a call. */
interface CallMark {
  /** The client's address without the port, which changes with each connection. */
  readonly address: string;
  readonly xid: number;
  /** The caller: one user must not get another's reply. */
  readonly credential: Credential;
}

interface Answered {
  readonly result: unknown;
  readonly atMs: number;
}

const ANSWERS_MAX = 1024;
/** Clients give up or have resent long before. */
const LIFE_MS = 120_000;

export class DuplicateCache {
  readonly #answers = new Map<string, Answered>();
  /** Calls in progress: one that is repeated meanwhile waits for the same result. */
  readonly #running = new Map<string, Promise<unknown>>();
  readonly #writer = new XdrWriter();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** The cached reply to the call; otherwise runs it and caches the result. */
  once<A, R extends { readonly status: number }>(
    call: CallMark,
    procedure: Procedure<A, R>,
    args: A,
    run: () => Eventually<R>,
  ): Eventually<R> {
    const key = this.#keyOf(call, procedure, args);
    const earlier = this.#answers.get(key);
    // The key includes the procedure, so the reply is one of its results.
    if (earlier !== undefined && this.#nowMs() - earlier.atMs < LIFE_MS) return earlier.result as R;
    const running = this.#running.get(key);
    if (running !== undefined) return running as Promise<R>;
    const result = run();
    if (!(result instanceof Promise)) return this.#keep(key, result);
    const kept = result
      .then((settled) => this.#keep(key, settled))
      .finally(() => this.#running.delete(key));
    this.#running.set(key, kept);
    return kept;
  }

  #keep<R extends { readonly status: number }>(key: string, result: R): R {
    const nowMs = this.#nowMs();
    this.#answers.delete(key);
    // Nothing was done; the reply asks the client to retry.
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
    // A digest: arguments may be long, and the cache is bounded.
    const digest = createHash('sha256').update(stream);
    for (const { bytes } of items) digest.update(bytes);
    digest.update(callerText(call.credential));
    return `${call.address} ${call.xid} ${procedure.number} ${digest.digest('base64')}`;
  }
}

/** The caller without the stamp, which may differ in a resent call. */
function callerText(credential: Credential): string {
  if (credential.flavor !== 'sys') return credential.flavor;
  const { uid, gid, gids } = credential;
  return `${uid} ${gid} ${gids.join()}`;
}
