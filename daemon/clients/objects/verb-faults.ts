/** Makes verbs fail because of injected faults. */
import { VerbsError } from '#contract/verbs/errors';
import type { RnicHost } from '#daemon/host/rnic-host';

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
