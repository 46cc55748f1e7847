/** Notifies the peer that a session was aborted while its association stays. */
import { writeUint16 } from '#base/checked-bytes';
import { UNTAGGED_HEADER_BYTES, writeUntaggedHeader } from '../wire/ddp-header.ts';
import { QueueNumber, RDMAPOpcode, rdmapControl } from '../wire/rdmap-header.ts';
import {
  emitTerminate,
  TERMINATE_ERRORS,
  type TerminateHeader,
  terminateSizeBytes,
} from '../wire/terminate.ts';
import { SSN_BYTES } from './session-message.ts';

const { layer, etype, code } = TERMINATE_ERRORS.rdmapLocalCatastrophic;
/** Refers to no segment of the peer. */
const HEADER: TerminateHeader = {
  layer,
  etype,
  code,
  segmentLength: undefined,
  ddpHeader: undefined,
  rdmaHeader: undefined,
};

/**
 * Returns an RDMAP Terminate in a message with the given DDP-SSN. The session's Terminate follows
 * it; without this message, the end would look graceful, although queued output was dropped.
 */
// SCTP-11.3-02
export function makeCutMessage(ssn: number): Uint8Array {
  const at = SSN_BYTES + UNTAGGED_HEADER_BYTES;
  const bytes = new Uint8Array(at + terminateSizeBytes(HEADER));
  writeUint16(bytes, 0, ssn);
  writeUntaggedHeader(bytes, SSN_BYTES, {
    last: true,
    ulp: rdmapControl(RDMAPOpcode.terminate),
    ulpWord: 0,
    qn: QueueNumber.terminate,
    msn: 1,
    mo: 0,
  });
  emitTerminate(HEADER, bytes, at);
  return bytes;
}
