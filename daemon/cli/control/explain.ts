/** `iwarpd explain`: what programs were refused, and why. */
import {
  REFUSALS_LIST_MAX,
  type Refusal,
  type RefusalFilter,
  refusalLine,
  refusalPlace,
} from '#contract/protocol/refusals';
import { jsonLine, type Output } from '#daemon/console/output';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { findDevice } from '../device-name.ts';

export interface ExplainArguments {
  readonly socket?: string;
  readonly follow?: boolean;
  readonly pid?: number;
  readonly program?: string;
  readonly device?: string;
  readonly last?: number;
  readonly json?: boolean;
}

/** Prints the last refusals and, with `follow`, new ones until `signal` fires. CommandFailure for an unknown device. */
export async function runExplain(
  given: ExplainArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const { socket: socketPath, pid, program, device } = given;
  const filter: RefusalFilter = {
    ...(pid === undefined ? {} : { pid }),
    ...(program === undefined ? {} : { program }),
    ...(device === undefined ? {} : { device }),
  };
  if (device !== undefined) await findDevice(device, socketPath);
  const limit = given.last ?? REFUSALS_LIST_MAX;
  const first = await queryDaemon('listRefusals', { ...filter, limit }, { socketPath });
  print(first.refusals, given, output);
  if (given.follow !== true) {
    if (first.refusals.length === 0 && given.json !== true) output.line(NOTHING);
    return;
  }
  let after = first.last;
  while (!signal.aborted) {
    const request = { ...filter, after, waitMs: FOLLOW_WAIT_MS };
    const next = await queryDaemon('listRefusals', request, { socketPath });
    if (next.lost > 0) output.note('iwarpd: some refusals came faster than they could be shown');
    print(next.refusals, given, output);
    after = next.last;
  }
}

/** Longest wait of a request: Ctrl-C takes effect within it. */
const FOLLOW_WAIT_MS = 500;
/** Printed if there are no refusals. */
const NOTHING = 'nothing was refused';

function print(refusals: readonly Refusal[], given: ExplainArguments, output: Output): void {
  for (const refusal of refusals) {
    if (given.json === true) output.line(jsonLine(refusal));
    else output.line(explainLine(refusal));
  }
}

/** One refusal as a line: time, program, and the sentence. */
export function explainLine(refusal: Refusal): string {
  const { at, pid, program, times } = refusal;
  const time = new Date(at).toTimeString().slice(0, 8);
  const where = refusalPlace(refusal);
  const what = where === '' ? refusalLine(refusal) : `${refusalLine(refusal)} (${where})`;
  const often = times === 1 ? '' : ` [${times} times]`;
  return `${time} ${program === '' ? '?' : program}[${pid}] ${what}${often}`;
}
