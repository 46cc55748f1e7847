/** Injects a fault while a function runs. */
import type { FaultControl, FaultSpec, FaultStatus } from '#contract/protocol/faults';
import { isVerbsError } from '#contract/verbs/errors';
import { DaemonControl, type DaemonControlOptions } from '../client/daemon-control.ts';
import { checkTesting } from './signatures.ts';

/** The injected fault. */
export interface InjectedFault {
  /** Number of the fault. */
  readonly id: number;
  /** The requested fault, with the chosen seed: the same seed makes the same choices. */
  readonly spec: FaultSpec;
  /** Occasions so far, and how often it fired. */
  status(): Promise<FaultStatus>;
}

/**
 * Injects a fault while `body` runs, and removes it afterwards, however `body` ends. Settles as
 * `body` does. `where` is the daemon's location (default: the user's own daemon), a
 * `DaemonControl`, or an embedded provider. Before it calls `body`, rejects with `VerbsError` if no
 * daemon is running, or with EINVAL, which names the wrong field of `spec`.
 *
 * It is not an error if the fault no longer exists then, because of a `reset`, another removal, or the end
 * of the daemon.
 */
export async function withFault<T>(
  spec: FaultSpec,
  body: (fault: InjectedFault) => T | Promise<T>,
  where: DaemonControlOptions | FaultControl = {},
): Promise<T> {
  checkTesting.withFault(spec, body, where);
  const control = 'addFault' in where ? where : new DaemonControl(where);
  const added = await control.addFault(spec);
  const { id } = added;
  try {
    return await body({ id, spec: added.spec, status: () => statusOf(control, added) });
  } finally {
    await control.removeFault(id).catch(ignoreGone);
  }
}

/** Its statistics; the last known ones if it was removed. */
async function statusOf(control: FaultControl, added: FaultStatus): Promise<FaultStatus> {
  const faults = await control.faults();
  return faults.find(({ id }) => id === added.id) ?? added;
}

const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ENODEV', 'ECONNREFUSED', 'EIO']);

function ignoreGone(error: unknown): void {
  if (!isVerbsError(error) || !GONE.has(error.code)) throw error;
}
