/** Opening of associations, for all transports. */
import { isVerbsError } from '#contract/verbs/errors';
import { SystemCallError } from '#native-bridge/libc/libc';
import { NetworkError } from '../links/network.ts';
import type { Association, AssociationAttempt } from './association.ts';

/** Callbacks of an association before it has a user. */
export interface Opening {
  /** Up, and the peer's indication is known. The callee must set a user, or abort. */
  handleUp(association: Association): void;
  handleFailed(errorCode: string, text: string): void;
}

/** Starts an association; if it cannot, reports that in a later turn. Returns the attempt. */
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
    const { code, message } = asNetworkError(error);
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

/** Callbacks for an association that the peer opens. `listener` returns its owner at that time. */
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

/** False, after aborting it, if the peer has no or another adaptation indication (SCTP-11.1-01). */
function agrees(association: Association, adaptation: number): boolean {
  if (association.peerAdaptation === adaptation) return true;
  association.abort();
  return false;
}

/** Error message for another adaptation indication. */
function adaptationText({ peerAdaptation }: Association): string {
  const found = peerAdaptation === undefined ? 'none' : String(peerAdaptation);
  return `the peer has another adaptation indication than ours: ${found}`;
}

/** Converts the failure of a system call or of an account; rethrows other errors. */
export function asNetworkError(error: unknown): NetworkError {
  if (error instanceof NetworkError) return error;
  if (isVerbsError(error)) return new NetworkError(error.code, error.message);
  if (error instanceof SystemCallError) return new NetworkError(error.code, error.message);
  throw error;
}
