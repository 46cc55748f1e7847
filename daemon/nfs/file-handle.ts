/**
 * File handles: what a client holds of a file, and must not be able to make up.
 *
 *      0        4              12             20                      36
 *     +--------+--------------+--------------+-----------------------+
 *     | "iwN3" | instance     | node         | authenticator         |
 *     +--------+--------------+--------------+-----------------------+
 *
 * The instance tells handles of an earlier run of the server, which are stale, from forged ones.
 * The authenticator is an HMAC over the rest with a secret that never leaves the process.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { Nfs3Status } from '../../verbs-api/rpcrdma/nfs3/constants.ts';
import { NfsFailure } from './nfs-failure.ts';

/** Octets of a handle. */
export const HANDLE_BYTES = 36;

const MAGIC = 0x6977_4e33;
const SIGNED_BYTES = 20;
const AUTHENTICATOR_BYTES = HANDLE_BYTES - SIGNED_BYTES;
const SECRET_BYTES = 32;

/**
 * The node that a handle says it names, whoever made it: a number to look for, and no proof.
 * Undefined for octets that are no handle of ours.
 */
export function claimedNode(handle: Uint8Array): number | undefined {
  if (handle.length !== HANDLE_BYTES) return undefined;
  const fields = new DataView(handle.buffer, handle.byteOffset, handle.byteLength);
  return Number(fields.getBigUint64(12));
}

/** Makes and opens the handles of one run of the server. */
export class HandleMint {
  readonly #secret = randomBytes(SECRET_BYTES);
  readonly #instance = randomBytes(8);

  /** The handle of node `id`, a safe integer. */
  make(id: number): Uint8Array {
    const handle = Buffer.alloc(HANDLE_BYTES);
    handle.writeUInt32BE(MAGIC, 0);
    this.#instance.copy(handle, 4);
    handle.writeBigUInt64BE(BigInt(id), 12);
    this.#authenticator(handle).copy(handle, SIGNED_BYTES);
    return handle;
  }

  /**
   * The node that a handle names, which may be gone. `NfsFailure`: badhandle for what no server of
   * ours made, stale for a handle of an earlier run.
   */
  open(handle: Uint8Array): number {
    const octets = Buffer.from(handle.buffer, handle.byteOffset, handle.byteLength);
    if (octets.length !== HANDLE_BYTES || octets.readUInt32BE(0) !== MAGIC) {
      throw new NfsFailure(Nfs3Status.badhandle, 'a handle that no iwarpd made');
    }
    if (!octets.subarray(4, 12).equals(this.#instance)) {
      throw new NfsFailure(Nfs3Status.stale, 'a handle of an earlier run');
    }
    if (!timingSafeEqual(octets.subarray(SIGNED_BYTES), this.#authenticator(octets))) {
      throw new NfsFailure(Nfs3Status.badhandle, 'a forged handle');
    }
    return Number(octets.readBigUInt64BE(12));
  }

  #authenticator(handle: Buffer): Buffer {
    const signature = createHmac('sha256', this.#secret).update(handle.subarray(0, SIGNED_BYTES));
    return signature.digest().subarray(0, AUTHENTICATOR_BYTES);
  }
}
