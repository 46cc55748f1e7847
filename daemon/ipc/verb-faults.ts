/** Verbs that fail because somebody asked for it. */
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { RnicHost } from '../adapter/rnic-host.ts';

/** Who calls a verb, as far as it is known. */
export interface VerbCaller {
  readonly device: string | undefined;
  readonly pid: number | undefined;
}

/**
 * Throws `VerbsError` when a fault of the host has the verb fail. `caller` is asked only when there
 * are such faults.
 */
export function failFaultyVerb(
  { faults: { injector } }: Pick<RnicHost, 'faults'>,
  verb: string | undefined,
  caller: () => VerbCaller,
): void {
  if (injector.verbs === undefined || verb === undefined) return;
  const { device, pid } = caller();
  const failure = injector.verbFailure(verb, device, pid);
  if (failure === undefined) return;
  throw new VerbsError(failure.code, `${verb} fails by fault ${failure.fault.id}`);
}
