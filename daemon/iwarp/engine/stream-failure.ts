/** The failure of a stream: what every wire says, and the numbers of the Terminate. */

import { MessageFailure, type WireFailure } from '../../rnic/wire-port.ts';
import type { ProtocolError } from '../wire/protocol-error.ts';
import { TerminateLayer } from '../wire/terminate.ts';

/** Error types of RDMAP and DDP (RFC 5040 §4.8). */
const RDMAP_PROTECTION = 1;
const RDMAP_OPERATION = 2;
const DDP_TAGGED = 1;

/** Why a stream failed. */
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
