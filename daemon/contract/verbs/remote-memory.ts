/** Memory of a peer as plain data, which one program sends to another as JSON. */
import { Access } from './enums.ts';
import { VerbsError } from './errors.ts';

/** The facts that a peer needs to access a memory region. Created by `MR.export`, sent as JSON. */
export interface RemoteMemory {
  /** Address of the first byte in hexadecimal, `0x` in front: JSON has no 64-bit numbers. */
  readonly addr: string;
  /** Remote key. Any holder may use the rights that the region was registered with. */
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
}

const ADDRESS = /^0x[0-9a-f]{1,16}$/;
const ADDRESS_END = 1n << 64n;
/** Longest text of a RemoteMemory, with room for white space. */
const TEXT_MAX_BYTES = 256;

/**
 * Checks what a peer sent and returns it as `RemoteMemory`: JSON text, its bytes, or a value that
 * was parsed already. Drops unknown fields.
 *
 * Throws `VerbsError` EINVAL, which names the field, for anything else: text over 256 bytes, a
 * missing field, an address or key out of range, a region beyond the end of the address space.
 */
export function parseRemoteMemory(input: unknown): RemoteMemory {
  const value = typeof input === 'string' || input instanceof Uint8Array ? parsed(input) : input;
  if (typeof value !== 'object' || value === null) throw invalid('not an object');
  const addr = field(value, 'addr');
  const rkey = field(value, 'rkey');
  const length = field(value, 'length');
  if (typeof addr !== 'string' || !ADDRESS.test(addr)) {
    throw invalid('addr must be a hexadecimal string such as "0x1f00"');
  }
  if (typeof rkey !== 'number' || rkey >>> 0 !== rkey) {
    throw invalid('rkey must be an unsigned 32-bit number');
  }
  if (typeof length !== 'number' || !Number.isSafeInteger(length) || length < 0) {
    throw invalid('length must be a number of bytes');
  }
  if (BigInt(addr) + BigInt(length) > ADDRESS_END) throw invalid('it extends beyond 64 bits');
  return { addr, rkey, length };
}

const REMOTE = Access.remoteRead | Access.remoteWrite | Access.remoteAtomic;

/**
 * The exported form of `length` bytes from `address` on, of a region with these `access` rights. Throws
 * `VerbsError` EACCES if peers have none.
 */
export function remoteMemory(
  address: bigint,
  rkey: number,
  length: number,
  access: number,
): RemoteMemory {
  if ((access & REMOTE) === 0) throw notForPeers(access);
  return { addr: `0x${address.toString(16)}`, rkey, length };
}

function parsed(input: string | Uint8Array): unknown {
  if (input.length > TEXT_MAX_BYTES) throw invalid(`longer than ${TEXT_MAX_BYTES} bytes`);
  try {
    return JSON.parse(typeof input === 'string' ? input : String.fromCharCode(...input));
  } catch {
    throw invalid('not JSON');
  }
}

/** An own property, never one of the prototype. */
function field(value: object, name: string): unknown {
  return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
}

function notForPeers(access: number): VerbsError {
  const rights = Object.entries(Access).filter(([, bit]) => (access & bit) !== 0);
  const names = rights.map(([name]) => name).join(' | ');
  return new VerbsError(
    'EACCES',
    `peers have no right to this memory region: its access is ${names === '' ? 'none' : names}; ` +
      'register it with remoteRead, remoteWrite or remoteAtomic',
  );
}

function invalid(why: string): VerbsError {
  return new VerbsError('EINVAL', `not an exported memory region: ${why}`);
}
