/**
 * Describes startup frames and ULPDUs in one line of text, for traces, test failures and the demo.
 */
import { readUint32 } from '#base/checked-bytes';
import {
  ATOMIC_REQUEST_BYTES,
  ATOMIC_RESPONSE_BYTES,
  AtomicOpcode,
  AtomicRequest,
  AtomicResponseField,
  IMMEDIATE_BYTES,
  readAtomicRequest,
} from './atomic-header.ts';
import {
  DDP_VERSION,
  type DDPHeader,
  readDDPHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
} from './ddp-header.ts';
import type { EnhancedParameters } from './enhanced-word.ts';
import {
  OPCODES,
  RDMAP_VERSION,
  RDMAP_VERSION_SHIFT,
  RDMAPControl,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  ReadRequest,
  readReadRequest,
} from './rdmap-header.ts';
import type { StartupFrame } from './startup-frame.ts';
import { parseTerminate } from './terminate.ts';

/** `MPA Request revision 2, CRC, IRD 8, ORD 8, 16 bytes of private data`. */
export function dumpStartupFrame(frame: StartupFrame): string {
  const words = [
    `MPA ${frame.kind === 'request' ? 'Request' : 'Reply'} revision ${frame.revision}`,
    ...(frame.rejected ? ['rejected'] : []),
    ...(frame.crc ? ['CRC'] : []),
    ...(frame.markers ? ['markers'] : []),
    ...(frame.enhanced === undefined ? [] : dumpEnhanced(frame.enhanced)),
  ];
  if (frame.privateData.length > 0) {
    words.push(`${frame.privateData.length} bytes of private data`);
  }
  return words.join(', ');
}

function dumpEnhanced(enhanced: EnhancedParameters): string[] {
  const words = [`IRD ${enhanced.ird}`, `ORD ${enhanced.ord}`];
  if (!enhanced.peerToPeer) return words;
  const { send, write, read } = enhanced.rtr;
  const kinds = [...(send ? ['Send'] : []), ...(write ? ['Write'] : []), ...(read ? ['Read'] : [])];
  return [...words, `peer to peer, RTR by ${kinds.join(' or ') || 'nothing'}`];
}

/**
 * The ULPDU of `length` bytes at `start`: message, queue or STag, MSN, offset and payload, such as
 * `Send QN 0 MSN 1 MO 0, 64 bytes, last`. For a malformed ULPDU, only its readable part.
 */
export function dumpULPDU(bytes: Uint8Array, start: number, length: number): string {
  const header = readDDPHeader(bytes, start, Math.min(length, bytes.length - start));
  if (header === undefined) return `ULPDU of ${length} bytes without a whole header`;
  const headerBytes = header.tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
  const place = header.tagged
    ? `STag ${hex32(header.stag)} TO ${hex64(header.toHi, header.toLo)}`
    : `QN ${header.qn} MSN ${header.msn} MO ${header.mo}`;
  const content = dumpContent(header, bytes, start + headerBytes, length - headerBytes);
  return `${messageName(header)} ${place}, ${content}${header.last ? ', last' : ''}`;
}

function messageName(header: DDPHeader): string {
  const rdmapVersion = header.ulp >>> RDMAP_VERSION_SHIFT;
  const opcode = header.ulp & RDMAPControl.opcode;
  const name = OPCODES[opcode]?.name ?? `Opcode ${opcode}`;
  const versions =
    header.version === DDP_VERSION && rdmapVersion === RDMAP_VERSION
      ? ''
      : ` (DDP version ${header.version}, RDMAP version ${rdmapVersion})`;
  const misplaced = OPCODES[opcode]?.tagged === header.tagged ? '' : ' (wrong tagged bit)';
  return `${name}${versions}${misplaced}`;
}

function dumpContent(header: DDPHeader, bytes: Uint8Array, at: number, length: number): string {
  const plain = `${length} bytes`;
  if (header.tagged) return plain;
  switch (header.ulp & RDMAPControl.opcode) {
    case RDMAPOpcode.readRequest:
      return length === READ_REQUEST_BYTES ? dumpReadRequest(bytes, at) : plain;
    case RDMAPOpcode.sendInvalidate:
    case RDMAPOpcode.sendSolicitedInvalidate:
      return `invalidates ${hex32(header.ulpWord)}, ${plain}`;
    case RDMAPOpcode.terminate:
      return dumpTerminate(bytes, at, length);
    case RDMAPOpcode.immediate:
    case RDMAPOpcode.immediateSolicited:
      if (length !== IMMEDIATE_BYTES) return plain;
      return `value ${hex64(readUint32(bytes, at), readUint32(bytes, at + 4))}`;
    case RDMAPOpcode.atomicRequest:
      return length === ATOMIC_REQUEST_BYTES ? dumpAtomicRequest(bytes, at) : plain;
    case RDMAPOpcode.atomicResponse:
      return length === ATOMIC_RESPONSE_BYTES ? dumpAtomicResponse(bytes, at) : plain;
    default:
      return plain;
  }
}

function dumpReadRequest(bytes: Uint8Array, at: number): string {
  const read = new ReadRequest();
  readReadRequest(bytes, at, read);
  const source = `STag ${hex32(read.sourceStag)} TO ${hex64(read.sourceToHi, read.sourceToLo)}`;
  const sink = `STag ${hex32(read.sinkStag)} TO ${hex64(read.sinkToHi, read.sinkToLo)}`;
  return `${read.size} bytes from ${source} to ${sink}`;
}

function dumpAtomicRequest(bytes: Uint8Array, at: number): string {
  const request = new AtomicRequest();
  readAtomicRequest(bytes, at, request);
  const target = `STag ${hex32(request.stag)} TO ${hex64(request.toHi, request.toLo)}`;
  const operand = hex64(request.operandHi, request.operandLo);
  const id = `id ${request.identifier}`;
  if (request.operation === AtomicOpcode.fetchAdd) return `FetchAdd ${operand} at ${target}, ${id}`;
  if (request.operation !== AtomicOpcode.compareSwap) {
    return `atomic operation ${request.operation} at ${target}, ${id}`;
  }
  return `CmpSwap ${hex64(request.compareHi, request.compareLo)} to ${operand} at ${target}, ${id}`;
}

function dumpAtomicResponse(bytes: Uint8Array, at: number): string {
  const hi = readUint32(bytes, at + AtomicResponseField.originalHi);
  const lo = readUint32(bytes, at + AtomicResponseField.originalLo);
  return `id ${readUint32(bytes, at)} was ${hex64(hi, lo)}`;
}

function dumpTerminate(bytes: Uint8Array, at: number, length: number): string {
  const terminate = parseTerminate(bytes, at, length);
  if (terminate === undefined) return `${length} bytes`;
  const { text, segmentLength, ddpHeader, rdmaHeader, quirk } = terminate;
  return [
    text,
    ...(segmentLength === undefined ? [] : [`segment of ${segmentLength} bytes`]),
    ...(ddpHeader === undefined ? [] : ['DDP header']),
    ...(rdmaHeader === undefined ? [] : ['RDMA header']),
    ...(quirk === undefined ? [] : [quirk]),
  ].join(', ');
}

/** `0x` and eight digits. */
export function hex32(value: number): string {
  return `0x${value.toString(16).padStart(8, '0')}`;
}

/** `0x` and sixteen digits. */
export function hex64(hi: number, lo: number): string {
  return `0x${hi.toString(16).padStart(8, '0')}${lo.toString(16).padStart(8, '0')}`;
}
