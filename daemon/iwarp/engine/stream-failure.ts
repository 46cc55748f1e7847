/** The failure of a stream: the part that all wires share, and the numbers of the Terminate. */
import { MessageFailure, type NamedRange, type WireFailure } from '#daemon/rnic/wire-port';
import { readDDPHeader, TAGGED_HEADER_BYTES } from '../wire/ddp-header.ts';
import type { ProtocolError } from '../wire/protocol-error.ts';
import { READ_REQUEST_BYTES, ReadRequest, readReadRequest } from '../wire/rdmap-header.ts';
import { type TerminateHeader, TerminateLayer } from '../wire/terminate.ts';

/** Error types of RDMAP and DDP (RFC 5040 §4.8). */
const RDMAP_PROTECTION = 1;
const RDMAP_OPERATION = 2;
const DDP_TAGGED = 1;

export interface StreamFailure extends WireFailure {
  /** The fields of the Terminate, if the failure has one. */
  readonly layer?: number;
  readonly etype?: number;
  readonly code?: number;
}

/** The failure that `error` is, or that a Terminate with its numbers reports. */
export function streamFailure(
  kind: string,
  text: string,
  error: Pick<ProtocolError, 'etype' | 'code' | 'quirk'> & { readonly layer: number },
): StreamFailure {
  const { layer, etype, code, quirk } = error;
  const detail = `layer ${layer}, type ${etype}, code ${code}`;
  const failure = { kind, text, layer, etype, code, detail, ...meaning(layer, etype) };
  return quirk === undefined ? failure : { ...failure, quirk };
}

/**
 * As in siw: a bad access to tagged memory is an access error, a bad request (Read, atomic, unknown
 * operation) a request error, anything else fatal. Reads and atomics are refused by RDMAP.
 */
function meaning(layer: number, etype: number): Pick<WireFailure, 'event' | 'refusal'> {
  if (layer === TerminateLayer.ddp && etype === DDP_TAGGED) return { event: 'access' };
  if (layer !== TerminateLayer.rdmap) return {};
  if (etype === RDMAP_PROTECTION) {
    return { event: 'request', refusal: MessageFailure.remoteAccess };
  }
  if (etype === RDMAP_OPERATION) {
    return { event: 'request', refusal: MessageFailure.remoteInvalidRequest };
  }
  return {};
}

/** The memory that a peer's Terminate is about, if it returns the headers that named it. */
export function terminatedMemory(terminate: TerminateHeader): NamedRange | undefined {
  const { ddpHeader, rdmaHeader, segmentLength = 0 } = terminate;
  if (rdmaHeader?.length === READ_REQUEST_BYTES) {
    const read = new ReadRequest();
    readReadRequest(rdmaHeader, 0, read);
    return rangeOf(read.sourceStag, read.sourceToHi, read.sourceToLo, read.size);
  }
  if (ddpHeader === undefined) return undefined;
  const header = readDDPHeader(ddpHeader, 0, ddpHeader.length);
  if (header?.tagged !== true) return undefined;
  const lengthBytes = Math.max(segmentLength - TAGGED_HEADER_BYTES, 0);
  return rangeOf(header.stag, header.toHi, header.toLo, lengthBytes);
}

function rangeOf(key: number, hi: number, lo: number, lengthBytes: number): NamedRange {
  return { key, address: (BigInt(hi) << 32n) | BigInt(lo), lengthBytes };
}
