/**
 * Messages of DDP over SCTP (RFC 5043 §5, RFC 6581 §7): every SCTP user message opens with a DDP
 * Stream Sequence Number, and the payload protocol says what follows it.
 *
 *      0                   1                   2                   3
 *      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 *     +-------------------------------+-------------------------------+
 *     |            DDP-SSN            |  DDP segment (protocol 16)    |
 *     +-------------------------------+-------------------------------+
 *     |            DDP-SSN            |  Function Code (protocol 17)  |
 *     +-+-+---------------------------+-+-+---------------------------+
 *     |A|B|       IRD (14)            |C|D|        ORD (14)           |  only functions 5 to 7
 *     +-+-+---------------------------+-+-+---------------------------+
 *     |                   Private Data (if any)                       |
 */
import { assert } from '#base/assert';
import { readUint16, readUint32, writeUint16, writeUint32 } from '#base/checked-bytes';
import {
  ENHANCED_BYTES,
  type EnhancedParameters,
  enhancedWord,
  parseEnhancedWord,
} from '../wire/enhanced-word.ts';

/** Payload Protocol Identifiers (SCTP-5.2-01). */
export const PayloadProtocol = { segment: 16, sessionControl: 17 } as const;

/** Bytes of the DDP-SSN. */
export const SSN_BYTES = 2;
/** Bytes of a control message without its data: DDP-SSN and function code. */
const CONTROL_HEADER_BYTES = 4;
/** Most Private Data in a control message, the enhanced word included. */
const PRIVATE_DATA_MAX_BYTES = 512;

/** Function codes of session control messages (SCTP-5.2.3-02, SCTPE-7-01). */
export const SessionFunction = {
  initiate: 1,
  accept: 2,
  reject: 3,
  terminate: 4,
  enhancedInitiate: 5,
  enhancedAccept: 6,
  enhancedReject: 7,
} as const;
export type SessionFunction = (typeof SessionFunction)[keyof typeof SessionFunction];

export interface SessionMessage {
  readonly function: SessionFunction;
  /** Only functions 5 to 7 have it. A received Enhanced Reject may lack it (SCTPE-7-04). */
  readonly enhanced: EnhancedParameters | undefined;
  /** The consumer's bytes, without the enhanced word. */
  readonly privateData: Uint8Array;
}

/** Why bytes are not a valid control message. The session ends (SCTP-6.1-02). */
export type SessionMessageFault =
  /** Shorter than its header. */
  | 'short'
  /** A function code that no RFC defines. */
  | 'function'
  /** More Private Data than 512 bytes. */
  | 'private-data'
  /** Bytes after the function code of a Terminate. */
  | 'terminate-data'
  /** No room for the enhanced word. */
  | 'enhanced';

/** Maximum length of consumer Private Data of a message. */
// SCTPE-7-03: the enhanced word takes 4 of the 512 bytes.
export function sessionDataMaxBytes(enhanced: boolean): number {
  return enhanced ? PRIVATE_DATA_MAX_BYTES - ENHANCED_BYTES : PRIVATE_DATA_MAX_BYTES;
}

/** Reads a whole control message. `privateData` borrows `bytes`. */
export function parseSessionMessage(bytes: Uint8Array): SessionMessage | SessionMessageFault {
  if (bytes.length < CONTROL_HEADER_BYTES) return 'short';
  const code = functionOf(readUint16(bytes, SSN_BYTES));
  if (code === undefined) return 'function';
  const dataBytes = bytes.length - CONTROL_HEADER_BYTES;
  // SCTP-5.2.3-04
  if (code === SessionFunction.terminate && dataBytes > 0) return 'terminate-data';
  if (dataBytes > PRIVATE_DATA_MAX_BYTES) return 'private-data';
  const bare = code === SessionFunction.enhancedReject && dataBytes === 0;
  if (!isEnhanced(code) || bare) {
    const privateData = bytes.subarray(CONTROL_HEADER_BYTES);
    return { function: code, enhanced: undefined, privateData };
  }
  if (dataBytes < ENHANCED_BYTES) return 'enhanced';
  // SCTPE-7-02: the word opens the Private Data, and the consumer's bytes follow it.
  return {
    function: code,
    enhanced: parseEnhancedWord(readUint32(bytes, CONTROL_HEADER_BYTES)),
    privateData: bytes.subarray(CONTROL_HEADER_BYTES + ENHANCED_BYTES),
  };
}

/** Bytes of the message that `emitSessionMessage` writes. */
export function sessionMessageBytes(message: SessionMessage): number {
  const enhancedBytes = message.enhanced === undefined ? 0 : ENHANCED_BYTES;
  return CONTROL_HEADER_BYTES + enhancedBytes + message.privateData.length;
}

/** Throws `RangeError` when the consumer's Private Data is too long for `message`. */
export function checkSessionMessage(message: SessionMessage): void {
  const limit = sessionDataMaxBytes(message.enhanced !== undefined);
  const { length } = message.privateData;
  // SCTP-5.2.3-04, SCTPE-7-03
  if (length > limit) throw new RangeError(`Private Data of ${length} bytes; at most ${limit}`);
}

/**
 * Writes `message` into `target[start, start + sessionMessageBytes(message))`. It must have passed
 * `checkSessionMessage`.
 */
export function emitSessionMessage(
  message: SessionMessage,
  ssn: number,
  target: Uint8Array,
  start: number,
): void {
  const { enhanced, privateData } = message;
  const code = message.function;
  assert(isEnhanced(code) === (enhanced !== undefined), 'functions 5 to 7 have the enhanced word');
  assert(
    code !== SessionFunction.terminate || privateData.length === 0,
    'a Terminate has no Private Data',
  );
  writeUint16(target, start, ssn);
  writeUint16(target, start + SSN_BYTES, code);
  let at = start + CONTROL_HEADER_BYTES;
  if (enhanced !== undefined) {
    writeUint32(target, at, enhancedWord(enhanced));
    at += ENHANCED_BYTES;
  }
  target.set(privateData, at);
}

function isEnhanced(code: SessionFunction): boolean {
  return code >= SessionFunction.enhancedInitiate;
}

function functionOf(code: number): SessionFunction | undefined {
  const known = code >= SessionFunction.initiate && code <= SessionFunction.enhancedReject;
  return known ? (code as SessionFunction) : undefined;
}
