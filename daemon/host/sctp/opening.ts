/** How associations come up, whatever the transport. */
import { isVerbsError } from '#contract/verbs/errors';
import { SystemCallError } from '#native-bridge/libc/libc';
import { TransportError } from '../links/network.ts';
import type { Association, AssociationAttempt } from './association.ts';

/** What becomes of an association before it has a user. */
export interface Opening {
  /** Up, with the peer's indication known. It must have a user on return, or have been aborted. */
  handleUp(association: Association): void;
  handleFailed(errorCode: string, text: string): void;
}

/** Starts an association, and tells of its end in a later turn if it cannot. Returns the attempt. */
export function attempt(
  start: (opening: Opening) => Association,
  clock: { soon(run: () => void): void },
  adaptation: number,
  onOpen: (association: Association) => void,
  onFailed: (errorCode: string, text: string) => void,
): AssociationAttempt {
  let association: Association | undefined;
  let cancelled = false;
  try {
    association = start({
      handleUp: (up) => {
        if (agrees(up, adaptation)) onOpen(up);
        else onFailed('EPROTO', adaptationText(up));
      },
      handleFailed: onFailed,
    });
  } catch (error) {
    const { code, message } = asTransportError(error);
    clock.soon(() => {
      if (!cancelled) onFailed(code, message);
    });
  }
  return {
    cancel: () => {
      cancelled = true;
      association?.abort();
    },
  };
}

/** How an association comes up that the peer opens; `listener` has whoever gets it then. */
export function arrivingAt(
  adaptation: number,
  listener: () => ((association: Association) => void) | undefined,
): Opening {
  return {
    handleUp: (up) => {
      const deliver = listener();
      if (deliver === undefined) up.abort();
      else if (agrees(up, adaptation)) deliver(up);
    },
    handleFailed: () => {},
  };
}

/** False, and aborted, if the peer has another adaptation indication, or none (SCTP-11.1-01). */
function agrees(association: Association, adaptation: number): boolean {
  if (association.peerAdaptation === adaptation) return true;
  association.abort();
  return false;
}

/** What the attempt to open an association failed of that did not agree. */
function adaptationText({ peerAdaptation }: Association): string {
  const found = peerAdaptation === undefined ? 'none' : String(peerAdaptation);
  return `the peer has another adaptation indication than ours: ${found}`;
}

/** The failure of a system call, or of an account, as the host's; throws what is neither. */
export function asTransportError(error: unknown): TransportError {
  if (error instanceof TransportError) return error;
  if (isVerbsError(error)) return new TransportError(error.code, error.message);
  if (error instanceof SystemCallError) return new TransportError(error.code, error.message);
  throw error;
}
