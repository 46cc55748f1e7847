/** Work completions and asynchronous events: what a device reports. */
import type { AsyncEventType, WCOpcode, WCStatus } from './enums.ts';

/** A work completion (`struct ibv_wc`). */
export interface WC {
  readonly wrId: bigint;
  readonly status: WCStatus;
  /** Valid when `status` is success; for an error the operation is told as far as it is known. */
  readonly opcode: WCOpcode;
  /** Octets moved; 0 for an error. */
  readonly byteLen: number;
  readonly qpNum: number;
  /** Bits of `WCFlag`. */
  readonly wcFlags: number;
  /** With `WCFlag.withImm`: the 8 octets of Immediate Data as a number (RFC 7306 §6). */
  readonly immData: bigint;
  /** With `WCFlag.withInv`: the STag that the peer invalidated. */
  readonly invalidatedRkey: number;
}

/** An asynchronous event of a device (`struct ibv_async_event`). */
export interface AsyncEvent {
  readonly type: AsyncEventType;
  /** The object concerned: handle of the QP, CQ or SRQ; the port number for port events. */
  readonly element: number;
  /** QP number for QP events, else undefined. */
  readonly qpNum: number | undefined;
  /** One line for people: what happened, with the peer's quirk named where one is known. */
  readonly text: string;
}
