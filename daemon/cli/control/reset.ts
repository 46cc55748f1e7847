/** `iwarpd reset`: a daemon as good as new, and a report of what was left behind. */
import { queryDaemon } from '../../../verbs-api/client/daemon-link.ts';
import type { ResetReport } from '../../../verbs-api/contract/control.ts';
import { CommandFailure } from '../failure.ts';
import { type Output, printJson, tableLines } from '../output.ts';
import { objectsText } from '../status.ts';

/** Options of the command. */
export interface ResetArguments {
  readonly socket?: string;
  readonly json?: boolean;
  readonly expectClean?: boolean;
}

/** Resets the daemon. VerbsError when there is none; CommandFailure for leaks that nobody expects. */
export async function runReset(given: ResetArguments, output: Output): Promise<void> {
  const report = await queryDaemon('reset', {}, { socketPath: given.socket });
  if (given.json === true) printJson(output, report);
  else for (const line of resetLines(report)) output.line(line);
  if (given.expectClean === true && report.leaks.length > 0) {
    throw new CommandFailure(`${counted(report.leaks.length, 'client')} still held objects`);
  }
}

/** The report for people. */
export function resetLines({ leaks, clients, connections, faults }: ResetReport): string[] {
  const removed = faults === 0 ? '' : `; removed ${counted(faults, 'fault')}`;
  const ended = `ended ${counted(clients, 'client')} and ${counted(connections, 'connection')}${removed}`;
  if (leaks.length === 0) return [`clean: nothing was open; ${ended}`];
  const rows = leaks.map(({ pid, program, usage }) => [
    String(pid),
    program === '' ? '(not visible)' : program,
    objectsText(usage.objects),
  ]);
  return [
    `${counted(leaks.length, 'client')} still held objects; ${ended}`,
    ...tableLines([['pid', 'program', 'held'], ...rows]),
  ];
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}
