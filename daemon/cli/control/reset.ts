/** `iwarpd reset`: clears the state of a daemon and reports what clients leaked. */
import type { ResetReport } from '#contract/protocol/control';
import { CommandFailure } from '#daemon/console/failure';
import { counted, type Output, printJson, tableLines } from '#daemon/console/output';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { objectsText } from '../status.ts';

export interface ResetArguments {
  readonly socket?: string;
  readonly json?: boolean;
  readonly expectClean?: boolean;
}

/**
 * Resets the daemon. VerbsError if no daemon is running; CommandFailure for leaks with `expectClean`.
 */
export async function runReset(given: ResetArguments, output: Output): Promise<void> {
  const report = await queryDaemon('reset', {}, { socketPath: given.socket });
  if (given.json === true) printJson(output, report);
  else for (const line of resetLines(report)) output.line(line);
  const { leaks, endedHolding } = report;
  if (given.expectClean !== true || leaks.length + endedHolding.length === 0) return;
  throw new CommandFailure(
    [
      ...(leaks.length > 0 ? [`${counted(leaks.length, 'client')} still held objects`] : []),
      ...(endedHolding.length > 0 ? [`${counted(endedHolding.length, 'client')} ${ENDED}`] : []),
    ].join('; '),
  );
}

export function resetLines(report: ResetReport): string[] {
  const { leaks, clients, connections, faults } = report;
  const removed = faults === 0 ? '' : `; removed ${counted(faults, 'fault')}`;
  const ended = `ended ${counted(clients, 'client')} and ${counted(connections, 'connection')}${removed}`;
  const lines = leakLines(report);
  if (lines.length === 0) return [`clean: nothing was open; ${ended}`];
  if (leaks.length === 0) return [ended, ...lines];
  const [head, ...rest] = lines;
  return [`${head}; ${ended}`, ...rest];
}

/** The report's lines about open objects; none if there were none. */
export function leakLines({ leaks, endedHolding }: ResetReport): string[] {
  const still = leaks.map(({ pid, program, usage }) => rowOf(pid, program, usage.objects));
  const gone = endedHolding.map(({ pid, program, objects }) => rowOf(pid, program, objects));
  const head = ['pid', 'program', 'held'];
  return [
    ...(still.length === 0 ? [] : [`${counted(still.length, 'client')} still held objects`]),
    ...(still.length === 0 ? [] : tableLines([head, ...still])),
    ...(gone.length === 0 ? [] : [`${counted(gone.length, 'client')} ${ENDED}`]),
    ...(gone.length === 0 ? [] : tableLines([head, ...gone])),
  ];
}

/** Text for clients that ended before the reset. */
const ENDED = 'had ended without releasing objects';

function rowOf(pid: number, program: string, objects: Readonly<Record<string, number>>): string[] {
  return [String(pid), program === '' ? '(not visible)' : program, objectsText(objects)];
}
