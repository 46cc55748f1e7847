/** A fault for as long as a function runs. */
import { DaemonControl, type DaemonControlOptions } from '../client/daemon-control.ts';
import { isVerbsError } from '../contract/errors.ts';
import type { FaultControl, FaultSpec, FaultStatus } from '../contract/faults.ts';

/** A fault that is there while the function runs. */
export interface InjectedFault {
  readonly id: number;
  /** As it was asked for, with the seed that was chosen: the same seed makes the same choices. */
  readonly spec: FaultSpec;
  /** Occasions so far, and on how many of them it happened. */
  status(): Promise<FaultStatus>;
}

/**
 * Has a fault committed while `body` runs, and removes it however that ends. Settles as `body` does.
 * `where` is the daemon's place (default: the user's own daemon) or whoever commits it: a
 * `DaemonControl`, an embedded provider. Rejects with `VerbsError` before `body` is called when there
 * is no daemon, or with EINVAL that names the field of `spec` that is wrong.
 *
 * A fault that is gone by the end (`reset`, another remover, the daemon's own end) is no failure.
 */
export async function withFault<T>(
  spec: FaultSpec,
  body: (fault: InjectedFault) => T | Promise<T>,
  where: DaemonControlOptions | FaultControl = {},
): Promise<T> {
  const control = 'addFault' in where ? where : new DaemonControl(where);
  const added = await control.addFault(spec);
  const { id } = added;
  try {
    return await body({ id, spec: added.spec, status: () => statusOf(control, added) });
  } finally {
    await control.removeFault(id).catch(ignoreGone);
  }
}

/** What it has done; what was known last when it is gone. */
async function statusOf(control: FaultControl, added: FaultStatus): Promise<FaultStatus> {
  const faults = await control.faults();
  return faults.find(({ id }) => id === added.id) ?? added;
}

const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ENODEV', 'ECONNREFUSED', 'EIO']);

function ignoreGone(error: unknown): void {
  if (!isVerbsError(error) || !GONE.has(error.code)) throw error;
}
