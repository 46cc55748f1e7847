/**
 * Converts elements of the client's rings to work requests for the native device.
 *
 * Keys and addresses pass through: a region's address for its client is its address in this
 * process, and the device itself checks keys, bounds and protection domain. Each field is read
 * once, and nothing a client writes can make this code throw.
 */
import {
  CQEStatus,
  INLINE_MAX,
  QueueFlag,
  RQE,
  SGE_BYTES,
  SGE_MAX,
  SQE,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import { SendFlag, WROpcode } from '#contract/verbs/enums';
import type { RecvWR, SendFields, SGE } from '#contract/verbs/work-request';
import type { ElementRing } from '../rnic/rings/ring.ts';

const TWO_TO_32 = 2 ** 32;
/** From this upper half on, a 64-bit number must be a bigint. */
const EXACT_HIGH_END = 2 ** 21;
const NO_BYTES = new Uint8Array(0);

/** The native operation of an element, by `SQOpcode`. Native devices support no others. */
const OPERATIONS: ReadonlyMap<number, WROpcode> = new Map<number, WROpcode>([
  [SQOpcode.write, WROpcode.rdmaWrite],
  [SQOpcode.read, WROpcode.rdmaRead],
  [SQOpcode.send, WROpcode.send],
  [SQOpcode.sendRemoteInv, WROpcode.sendWithInv],
  [SQOpcode.fetchAndAdd, WROpcode.atomicFetchAndAdd],
  [SQOpcode.compAndSwap, WROpcode.atomicCmpAndSwap],
  [SQOpcode.localInv, WROpcode.localInv],
]);

class Element implements SGE {
  addr: number | bigint = 0;
  length = 0;
  lkey = 0;
}

/** Scatter/gather elements, refilled for each request. */
class ElementList {
  readonly #elements = Array.from({ length: SGE_MAX }, () => new Element());
  #list: Element[] = [];

  get list(): readonly SGE[] {
    return this.#list;
  }

  clear(): void {
    this.#list.length = 0;
  }

  /** `count` is at most `SGE_MAX`. */
  read(view: DataView, position: number, count: number): void {
    this.#list.length = 0;
    for (const element of this.#elements) {
      if (this.#list.length === count) break;
      const at = position + this.#list.length * SGE_BYTES;
      element.addr = longAt(view, at);
      element.length = view.getUint32(at + 8, true);
      element.lkey = view.getUint32(at + 12, true);
      this.#list.push(element);
    }
  }
}

/** A send request, refilled for each element. Always signalled: see `BridgedQP`. */
export class SendRequest implements SendFields {
  wrId = 0;
  opcode: WROpcode = WROpcode.send;
  flags = 0;
  inlineData: Uint8Array = NO_BYTES;
  remoteAddr: number | bigint = 0;
  rkey = 0;
  invalidateRkey = 0;
  compareAdd: number | bigint = 0;
  swap: number | bigint = 0;
  /** The client's own id of the element that `read` took. */
  wrIdLo = 0;
  wrIdHi = 0;
  /**
   * `SQOpcode` of the element; an unknown one is reported as a Send, which every client can name.
   */
  sqOpcode: number = SQOpcode.send;
  /** The client requested a completion on success. */
  signalled = false;
  readonly #sges = new ElementList();

  get sgList(): readonly SGE[] {
    return this.#sges.list;
  }

  /** Reads the ring's next element, which is VALID. Returns the status to complete it with. */
  read(ring: ElementRing, limits: { readonly maxSge: number; readonly maxInline: number }) {
    const { view, position } = ring;
    this.wrIdLo = view.getUint32(position + SQE.wrId, true);
    this.wrIdHi = view.getUint32(position + SQE.wrId + 4, true);
    const flags = view.getUint16(position + SQE.flags, true);
    const numSge = view.getUint8(position + SQE.numSge);
    const sqOpcode = view.getUint8(position + SQE.opcode);
    const opcode = OPERATIONS.get(sqOpcode);
    this.sqOpcode = opcode === undefined ? SQOpcode.send : sqOpcode;
    this.signalled = (flags & QueueFlag.signalled) !== 0;
    this.flags = SendFlag.signaled | sendFlags(flags);
    this.inlineData = NO_BYTES;
    this.#sges.clear();
    if (opcode === undefined) return CQEStatus.locQpOpErr;
    this.opcode = opcode;
    this.rkey = view.getUint32(position + SQE.rkey, true);
    this.invalidateRkey = this.rkey;
    this.remoteAddr = longAt(view, position + SQE.raddr);
    if ((flags & QueueFlag.inline) !== 0) return this.#readInline(ring, limits.maxInline);
    if (numSge > Math.min(SGE_MAX, limits.maxSge)) return CQEStatus.locQpOpErr;
    this.#sges.read(view, position + SQE.sge, numSge);
    if (opcode === WROpcode.atomicFetchAndAdd) {
      this.compareAdd = longAt(view, position + SQE.atomicOperand);
    } else if (opcode === WROpcode.atomicCmpAndSwap) {
      this.swap = longAt(view, position + SQE.atomicOperand);
      this.compareAdd = longAt(view, position + SQE.atomicCompare);
    }
    return CQEStatus.success;
  }

  #readInline({ view, position, bytes }: ElementRing, maxInline: number): CQEStatus {
    // The first SGE holds the length; num_sge is ignored.
    const length = view.getUint32(position + SQE.sge + 8, true);
    if (length > Math.min(INLINE_MAX, maxInline)) return CQEStatus.locLenErr;
    const start = position + SQE.inline;
    // Copied, since the element is returned to the client before the request is posted.
    this.inlineData = bytes.slice(start, start + length);
    return CQEStatus.success;
  }
}

/** A receive request, refilled for each element. */
export class ReceiveRequest implements RecvWR {
  wrId = 0;
  wrIdLo = 0;
  wrIdHi = 0;
  readonly #sges = new ElementList();

  get sgList(): readonly SGE[] {
    return this.#sges.list;
  }

  /** Reads the ring's next element. A malformed one gets an empty list. */
  read({ view, position }: ElementRing, maxSge: number): void {
    this.wrIdLo = view.getUint32(position + RQE.wrId, true);
    this.wrIdHi = view.getUint32(position + RQE.wrId + 4, true);
    const numSge = view.getUint8(position + RQE.numSge);
    const usable = numSge <= Math.min(SGE_MAX, maxSge);
    this.#sges.read(view, position + RQE.sge, usable ? numSge : 0);
  }
}

function sendFlags(flags: number): number {
  return (
    ((flags & QueueFlag.readFence) !== 0 ? SendFlag.fence : 0) |
    ((flags & QueueFlag.solicited) !== 0 ? SendFlag.solicited : 0) |
    ((flags & QueueFlag.inline) !== 0 ? SendFlag.inline : 0)
  );
}

/** A 64-bit value: a number if that is exact. */
function longAt(view: DataView, position: number): number | bigint {
  const low = view.getUint32(position, true);
  const high = view.getUint32(position + 4, true);
  if (high < EXACT_HIGH_END) return high * TWO_TO_32 + low;
  return (BigInt(high) << 32n) | BigInt(low);
}
