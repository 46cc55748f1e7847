/** Verbs that fail because of an injected fault. */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import type { RnicHost } from '../../host/rnic-host.ts';

/** The caller of a verb; unknown fields are undefined. */
interface VerbCaller {
  readonly device: string | undefined;
  readonly pid: number | undefined;
}

/**
 * Throws `VerbsError` if an injected fault makes the verb fail. `caller` is called only if there are
 * such faults.
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
  throw new VerbsError(failure.code, `${verb} failed by injected fault ${failure.fault.id}`);
}
