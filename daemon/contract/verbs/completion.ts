/** The reports of a device: work completions and asynchronous events. */
import { type AsyncEventType, WC_STATUS_TEXT, WCFlag, WCOpcode, WCStatus } from './enums.ts';

/** A work completion (`struct ibv_wc`). */
export interface WC {
  /** The `wrId` of the work request. */
  readonly wrId: bigint;
  /** Success, or why the work request failed. */
  readonly status: WCStatus;
  /**
   * The operation. Exact if `status` is success; after an error the device may know only whether it
   * was a send or a receive.
   */
  readonly opcode: WCOpcode;
  /** Bytes moved; 0 for an error. */
  readonly byteLen: number;
  /** Number of the queue pair whose work request completed. */
  readonly qpNum: number;
  /** Bits of `WCFlag`. */
  readonly wcFlags: number;
  /** With `WCFlag.withImm`: the immediate data as a number of 32 bits, on iWARP of 64. */
  readonly immData: bigint;
  /** With `WCFlag.withInv`: the STag that the peer invalidated. */
  readonly invalidatedRkey: number;
  /** With `WCFlag.grh`: number of the queue pair that sent the datagram; otherwise 0. */
  readonly srcQp: number;
  /**
   * Why the work request failed, as a sentence that names rule, address and key; undefined for
   * success. A device may send it shortly after the completion: `CQ.wait` waits for it, `CQ.poll`
   * cannot. Real devices report the status only.
   */
  readonly reason?: string | undefined;
}

/** An asynchronous event of a device (`struct ibv_async_event`). */
export interface AsyncEvent {
  /** The kind of event. */
  readonly type: AsyncEventType;
  /** The object concerned: handle of the QP, CQ or SRQ; the port number for port events. */
  readonly element: number;
  /** QP number for QP events, else undefined. */
  readonly qpNum: number | undefined;
  /** One readable line: what happened, and the peer's known quirk if one explains it. */
  readonly text: string;
}

const WCOPCODE_NAMES = namesOf(WCOpcode);
const WCSTATUS_NAMES = namesOf(WCStatus);

/** Name of a completion's operation, as in `WCOpcode`. */
export function opcodeName(opcode: WCOpcode): string {
  return WCOPCODE_NAMES.get(opcode) ?? `opcode ${opcode}`;
}

/** Name of a completion's status, as in `WCStatus`, with its meaning if it is an error. */
export function statusName(status: WCStatus): string {
  const name = WCSTATUS_NAMES.get(status) ?? `status ${status}`;
  return status === WCStatus.success ? name : `${name} (${WC_STATUS_TEXT[status]})`;
}

/** The completions of devices: a `WC` that Node prints on one line, with names for numbers. */
export class Completion implements WC {
  wrId = 0n;
  status: WCStatus = WCStatus.success;
  opcode: WCOpcode = WCOpcode.send;
  byteLen = 0;
  qpNum = 0;
  wcFlags = 0;
  immData = 0n;
  invalidatedRkey = 0;
  srcQp = 0;

  get reason(): string | undefined {
    return undefined;
  }

  /** Called by Node's `util.inspect` and `console.log`. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const parts = [
      `wrId: ${this.wrId}`,
      `status: ${statusName(this.status)}`,
      `opcode: ${opcodeName(this.opcode)}`,
      `byteLen: ${this.byteLen}`,
      `qpNum: ${this.qpNum}`,
    ];
    if ((this.wcFlags & WCFlag.withImm) !== 0)
      parts.push(`immData: 0x${this.immData.toString(16)}`);
    if ((this.wcFlags & WCFlag.withInv) !== 0) {
      parts.push(`invalidatedRkey: 0x${this.invalidatedRkey.toString(16)}`);
    }
    if ((this.wcFlags & WCFlag.grh) !== 0) parts.push(`srcQp: ${this.srcQp}`);
    if (this.reason !== undefined) parts.push(`reason: ${this.reason}`);
    return `WC { ${parts.join(', ')} }`;
  }
}

/** A completion in error: its reason is looked up when it is asked for. */
export class FailedCompletion extends Completion {
  readonly #reason: (wc: WC) => string | undefined;

  constructor(wc: Completion, reason: (wc: WC) => string | undefined) {
    super();
    Object.assign(this, wc);
    this.#reason = reason;
  }

  override get reason(): string | undefined {
    return this.#reason(this);
  }
}

function namesOf(numbers: Readonly<Record<string, number>>): ReadonlyMap<number, string> {
  return new Map(Object.entries(numbers).map(([name, number]) => [number, name]));
}
