/**
 * File handles, which clients must not be able to forge.
 *
 *      0        4              12             20                      36
 *     +--------+--------------+--------------+-----------------------+
 *     | "iwN3" | instance     | node         | authenticator         |
 *     +--------+--------------+--------------+-----------------------+
 *
 * The instance distinguishes handles of an earlier run, which are stale, from forged ones.
 * The authenticator is an HMAC over the rest with a secret that never leaves the process.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { Nfs3Status } from '../nfs3/constants.ts';
import { NfsFailure } from './nfs-failure.ts';

export const HANDLE_BYTES = 36;

const MAGIC = 0x6977_4e33;
const SIGNED_BYTES = 20;
const AUTHENTICATOR_BYTES = HANDLE_BYTES - SIGNED_BYTES;
const SECRET_BYTES = 32;

/**
 * The node that a handle claims to name: for a lookup, not authenticated. Undefined if the bytes do
 * not have the format of our handles.
 */
export function claimedNode(handle: Uint8Array): number | undefined {
  if (handle.length !== HANDLE_BYTES) return undefined;
  const fields = new DataView(handle.buffer, handle.byteOffset, handle.byteLength);
  return Number(fields.getBigUint64(12));
}

/** Creates and verifies the handles of one run of the server. */
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
   * The node that a handle names; it may no longer exist. `NfsFailure`: badhandle for a forged
   * handle, stale for a handle of an earlier run.
   */
  open(handle: Uint8Array): number {
    const bytes = Buffer.from(handle.buffer, handle.byteOffset, handle.byteLength);
    if (bytes.length !== HANDLE_BYTES || bytes.readUInt32BE(0) !== MAGIC) {
      throw new NfsFailure(Nfs3Status.badhandle, 'a handle that no iwarpd made');
    }
    if (!bytes.subarray(4, 12).equals(this.#instance)) {
      throw new NfsFailure(Nfs3Status.stale, 'a handle of an earlier run');
    }
    if (!timingSafeEqual(bytes.subarray(SIGNED_BYTES), this.#authenticator(bytes))) {
      throw new NfsFailure(Nfs3Status.badhandle, 'a forged handle');
    }
    return Number(bytes.readBigUInt64BE(12));
  }

  #authenticator(handle: Buffer): Buffer {
    const signature = createHmac('sha256', this.#secret).update(handle.subarray(0, SIGNED_BYTES));
    return signature.digest().subarray(0, AUTHENTICATOR_BYTES);
  }
}
