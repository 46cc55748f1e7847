/**
 * Names the messages of a connection over SCTP: each is a frame, a DDP-SSN followed by session control or a
 * DDP segment. Loaded only if a device uses SCTP.
 *
 * Read before changing: RFC 5043 §5.2; RFC 6581 §7.
 */
import { readUint8 } from '#base/checked-bytes';
import type { FaultOpcode } from '#contract/protocol/faults';
import { PayloadProtocol, SessionFunction } from '../sctp/session-message.ts';
import { ENHANCED_BYTES } from '../wire/enhanced-word.ts';
import { RDMAPControl } from '../wire/rdmap-header.ts';
import { CONTROL_AT, type Frame, type FrameReader, type Framing, OPCODE_NAMES } from './frame.ts';

/** Session control that corresponds to MPA's frames. Terminate does not. */
const SESSION_NAMES: Readonly<Record<number, FaultOpcode>> = {
  [SessionFunction.initiate]: 'mpa-request',
  [SessionFunction.accept]: 'mpa-reply',
  [SessionFunction.reject]: 'mpa-reply',
  [SessionFunction.enhancedInitiate]: 'mpa-request',
  [SessionFunction.enhancedAccept]: 'mpa-reply',
  [SessionFunction.enhancedReject]: 'mpa-reply',
};
const ENHANCED: readonly number[] = [
  SessionFunction.enhancedInitiate,
  SessionFunction.enhancedAccept,
  SessionFunction.enhancedReject,
];
const SESSION_DEPTHS_AT = 4;
const SESSION_DEPTHS_END = SESSION_DEPTHS_AT + ENHANCED_BYTES;

export class SctpFrameReader implements FrameReader {
  next(bytes: Uint8Array, _framing: Framing, payloadProtocol: number): Frame {
    const startup = payloadProtocol === PayloadProtocol.sessionControl;
    // The low byte of a function code is where a segment has RDMAP's control byte.
    const control = readUint8(bytes, CONTROL_AT);
    const enhanced = startup && ENHANCED.includes(control) && bytes.length >= SESSION_DEPTHS_END;
    return {
      opcode: startup ? SESSION_NAMES[control] : OPCODE_NAMES[control & RDMAPControl.opcode],
      startup,
      message: true,
      depthsAt: enhanced ? SESSION_DEPTHS_AT : undefined,
      bytes: bytes.length,
      phase: 0,
    };
  }
}
