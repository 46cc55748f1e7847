/**
 * Splits a connection's output into frames: the startup frame, then FPDUs. Output of a stream always starts
 * and ends at a frame boundary.
 *
 * Read before changing: RFC 5044 §4.1, §4.3, §7.1.1.
 */
import { readUint8, readUint16 } from '#base/checked-bytes';
import { FAULT_OPCODES, type FaultOpcode } from '#contract/protocol/faults';
import { fpduSizeBytes, ULPDU_LENGTH_BYTES } from '../wire/fpdu.ts';
import { leadingMarkerBytes, markedSizeBytes, markerPhase } from '../wire/marker.ts';
import { RDMAPControl } from '../wire/rdmap-header.ts';
import { STARTUP_HEADER_BYTES } from '../wire/startup-frame.ts';
import { depthsAt } from './depths.ts';

/** Names of RDMAP's opcodes, by number. */
export const OPCODE_NAMES = FAULT_OPCODES.slice(0, FAULT_OPCODES.indexOf('mpa-request'));

/** Where the keys "MPA ID Req Frame" and "MPA ID Rep Frame" differ, and the letter of a Request. */
const KEY_LETTER = { at: 9, request: 0x71 } as const;
const PD_LENGTH_AT = 18;
/** The RDMAP control byte after the length field, or a DDP-SSN: byte 1 of the DDP segment. */
export const CONTROL_AT = ULPDU_LENGTH_BYTES + 1;

/** How the FPDUs of one direction are framed, from Full Operation on. */
export interface Framing {
  readonly crcEnabled: boolean;
  readonly markers: boolean;
}

/** The frame at the start of some output. */
export interface Frame {
  readonly opcode: FaultOpcode | undefined;
  readonly startup: boolean;
  /** An SCTP message: no length, marker or CRC, and it cannot be cut. */
  readonly message: boolean;
  /** Offset of the depths in a startup frame; undefined if it has none. */
  readonly depthsAt: number | undefined;
  /** Length, markers included. */
  readonly bytes: number;
  /** Marker phase at its start. */
  readonly phase: number;
}

export interface FrameReader {
  /** Describes the frame at the start of `bytes` and advances past it. */
  next(bytes: Uint8Array, framing: Framing, payloadProtocol: number): Frame;
}

/** Finds startup frame and FPDUs in the output of a TCP connection. */
export class TcpFrameReader implements FrameReader {
  #started: boolean;
  #phase: number;

  /** `sentBytes` were sent already, `startupBytes` of them in the startup frame (0: not sent yet). */
  constructor(sentBytes: number, startupBytes: number) {
    this.#started = startupBytes > 0;
    this.#phase = markerPhase(sentBytes - startupBytes);
  }

  next(bytes: Uint8Array, framing: Framing): Frame {
    if (!this.#started) {
      this.#started = true;
      this.#phase = 0;
      const request = readUint8(bytes, KEY_LETTER.at) === KEY_LETTER.request;
      const opcode = request ? 'mpa-request' : 'mpa-reply';
      const frame = bytes.subarray(0, startupFrameBytes(bytes));
      return {
        opcode,
        startup: true,
        message: false,
        depthsAt: depthsAt(frame),
        bytes: frame.length,
        phase: 0,
      };
    }
    const phase = this.#phase;
    const header = framing.markers ? leadingMarkerBytes(phase) : 0;
    const plainBytes = fpduSizeBytes(readUint16(bytes, header));
    const sizeBytes = framing.markers ? markedSizeBytes(phase, plainBytes) : plainBytes;
    this.#phase = markerPhase(phase + sizeBytes);
    // No marker splits the first four bytes of an FPDU: phases are multiples of 4.
    const control = readUint8(bytes, header + CONTROL_AT);
    const opcode = OPCODE_NAMES[control & RDMAPControl.opcode];
    return {
      opcode,
      startup: false,
      message: false,
      depthsAt: undefined,
      bytes: sizeBytes,
      phase,
    };
  }
}

/** Bytes of the startup frame at the start of `bytes`. */
export function startupFrameBytes(bytes: Uint8Array): number {
  return STARTUP_HEADER_BYTES + readUint16(bytes, PD_LENGTH_AT);
}
