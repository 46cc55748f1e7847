/** How associations come up, whatever the transport. */
import { SystemCallError } from '../../../native-bridge/libc/libc.ts';
import { TransportError } from '../links/network.ts';
import type { Association } from './association.ts';

/** What becomes of an association before it has a user. */
export interface Opening {
  /** Up, with the peer's indication known. It must have a user on return, or have been aborted. */
  handleUp(association: Association): void;
  handleFailed(errorCode: string, text: string): void;
}

/** False, and aborted, if the peer has another adaptation indication, or none (SCTP-11.1-01). */
export function agrees(association: Association, adaptation: number): boolean {
  if (association.peerAdaptation === adaptation) return true;
  association.abort();
  return false;
}

/** What the attempt to open an association failed of that did not agree. */
export function adaptationText({ peerAdaptation }: Association): string {
  const found = peerAdaptation === undefined ? 'none' : String(peerAdaptation);
  return `the peer has another adaptation indication than ours: ${found}`;
}

/** The failure of a system call as the host's; throws what is neither. */
export function asTransportError(error: unknown): TransportError {
  if (error instanceof TransportError) return error;
  if (error instanceof SystemCallError) return new TransportError(error.code, error.message);
  throw error;
}
