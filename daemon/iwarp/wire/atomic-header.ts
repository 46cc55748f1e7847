/**
 * The RDMAP extensions of RFC 7306: Atomic Request and Response, Immediate Data.
 *
 * ```
 *  Atomic Request Header, 52 bytes      Atomic Response Header, 12 bytes    Immediate Data, 8
 *   0  Reserved (28), AOpCode (4)         0  Original Request Identifier       0  data (64)
 *   4  Request Identifier                 4  Original Remote Data Value (64)
 *   8  Remote STag
 *   12 Remote TO (64)
 *   20 Add or Swap Data (64)
 *   28 Add or Swap Mask (64)
 *   36 Compare Data (64)
 *   44 Compare Mask (64)
 * ```
 *
 * RFC 7306 §4 calls the Response Header 32 bytes long; its own Figure 6 has 12 (RDMAPX-4-01).
 */
import { readUint32, writeUint32 } from '#base/checked-bytes';

/** Bytes of the Atomic Request Header (RDMAPX-5.2.1-01). */
export const ATOMIC_REQUEST_BYTES = 52;
/** Bytes of the Atomic Response Header (RDMAPX-5.2.2-01). */
export const ATOMIC_RESPONSE_BYTES = 12;
/** Bytes of Immediate Data (RDMAPX-6.2-01). */
export const IMMEDIATE_BYTES = 8;

/** Atomic operation codes (RDMAPX-5.2.1-02); 1 is reserved, the others are unassigned. */
export const AtomicOpcode = { fetchAdd: 0, compareSwap: 2 } as const;
const AOPCODE_MASK = 0x0f;

/** True for the operation codes that RFC 7306 assigns. */
export function isAtomicOpcode(operation: number): boolean {
  return operation === AtomicOpcode.fetchAdd || operation === AtomicOpcode.compareSwap;
}

/** An Atomic Request. Mutable, so that one object can be reused. Halves are unsigned 32-bit. */
export class AtomicRequest {
  /** `AtomicOpcode`, or another value that a peer sent (0 to 15). */
  operation = 0;
  identifier = 0;
  stag = 0;
  toHi = 0;
  toLo = 0;
  operandHi = 0;
  operandLo = 0;
  operandMaskHi = 0;
  operandMaskLo = 0;
  compareHi = 0;
  compareLo = 0;
  compareMaskHi = 0;
  compareMaskLo = 0;
}

/** Reads the 52 bytes at `at` into `request`. Throws `RangeError` if there are fewer. */
export function readAtomicRequest(bytes: Uint8Array, at: number, request: AtomicRequest): void {
  // RDMAPX-5.2.1-03 the 28 reserved bits are ignored.
  request.operation = readUint32(bytes, at) & AOPCODE_MASK;
  request.identifier = readUint32(bytes, at + 4);
  request.stag = readUint32(bytes, at + 8);
  request.toHi = readUint32(bytes, at + 12);
  request.toLo = readUint32(bytes, at + 16);
  request.operandHi = readUint32(bytes, at + 20);
  request.operandLo = readUint32(bytes, at + 24);
  request.operandMaskHi = readUint32(bytes, at + 28);
  request.operandMaskLo = readUint32(bytes, at + 32);
  request.compareHi = readUint32(bytes, at + 36);
  request.compareLo = readUint32(bytes, at + 40);
  request.compareMaskHi = readUint32(bytes, at + 44);
  request.compareMaskLo = readUint32(bytes, at + 48);
}

/** Writes the 52 bytes of `request` at `at`. */
export function writeAtomicRequest(request: AtomicRequest, target: Uint8Array, at: number): void {
  writeUint32(target, at, request.operation & AOPCODE_MASK);
  writeUint32(target, at + 4, request.identifier);
  writeUint32(target, at + 8, request.stag);
  writeUint32(target, at + 12, request.toHi);
  writeUint32(target, at + 16, request.toLo);
  writeUint32(target, at + 20, request.operandHi);
  writeUint32(target, at + 24, request.operandLo);
  writeUint32(target, at + 28, request.operandMaskHi);
  writeUint32(target, at + 32, request.operandMaskLo);
  writeUint32(target, at + 36, request.compareHi);
  writeUint32(target, at + 40, request.compareLo);
  writeUint32(target, at + 44, request.compareMaskHi);
  writeUint32(target, at + 48, request.compareMaskLo);
}

/** Writes the 12 bytes of an Atomic Response Header at `at`. */
export function writeAtomicResponse(
  target: Uint8Array,
  at: number,
  identifier: number,
  originalHi: number,
  originalLo: number,
): void {
  writeUint32(target, at, identifier);
  writeUint32(target, at + 4, originalHi);
  writeUint32(target, at + 8, originalLo);
}

export const AtomicResponseField = { identifier: 0, originalHi: 4, originalLo: 8 } as const;

/** Writes 8 bytes of Immediate Data at `at`. */
export function writeImmediate(target: Uint8Array, at: number, hi: number, lo: number): void {
  writeUint32(target, at, hi);
  writeUint32(target, at + 4, lo);
}
