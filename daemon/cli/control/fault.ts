/** `iwarpd fault`: has something go wrong in a running daemon, shows what does, and ends it. */
import { queryDaemon } from '../../../verbs-api/client/daemon-link.ts';
import type { FaultSpec, FaultStatus } from '../../../verbs-api/contract/faults.ts';
import { usageFailure } from '../failure.ts';
import { type Output, printJson, tableLines } from '../output.ts';

/** Options that all the commands have. */
export interface FaultArguments {
  readonly socket?: string;
  readonly json?: boolean;
}

/** Adds a fault, and prints it with the seed that was chosen. `VerbsError` names a wrong field. */
export async function runFaultAdd(
  kind: string,
  given: FaultArguments & Readonly<Record<string, unknown>>,
  output: Output,
): Promise<void> {
  // What names the daemon is no field of the fault.
  const { socket, json, instance: _, ...fields } = given;
  // The daemon is who knows kinds and what goes with them.
  const spec = { ...fields, kind } as FaultSpec;
  const fault = await queryDaemon('addFault', spec, { socketPath: socket });
  if (json === true) printJson(output, fault);
  else output.line(`fault ${fault.id}: ${specText(fault.spec)}`);
}

/** Lists the faults. */
export async function runFaultList(given: FaultArguments, output: Output): Promise<void> {
  const faults = await queryDaemon('listFaults', {}, { socketPath: given.socket });
  if (given.json === true) printJson(output, faults);
  else if (faults.length === 0) output.line('no faults');
  else for (const line of faultLines(faults)) output.line(line);
}

/** Removes the fault of a number, or all of them. */
export async function runFaultRemove(
  id: number | undefined,
  given: FaultArguments & { readonly all?: boolean },
  output: Output,
): Promise<void> {
  if ((id === undefined) === (given.all !== true)) {
    throw usageFailure('name one fault, or --all; `iwarpd fault list` shows their numbers');
  }
  const place = { socketPath: given.socket };
  const removed =
    id === undefined
      ? await queryDaemon('removeFaults', {}, place)
      : [await queryDaemon('removeFault', { id }, place)];
  if (given.json === true) printJson(output, removed);
  else if (removed.length === 0) output.line('no faults');
  for (const { id: number, spec, fired } of given.json === true ? [] : removed) {
    output.line(`removed fault ${number}: ${specText(spec)}; it happened ${times(fired)}`);
  }
}

/** The table of faults. */
export function faultLines(faults: readonly FaultStatus[]): string[] {
  const rows = faults.map(({ id, spec, matched, fired }) => {
    return [String(id), specText(spec), String(matched), String(fired)];
  });
  return tableLines([['id', 'fault', 'occasions', 'happened'], ...rows]);
}

/** A fault in words: its kind, then its fields by name. */
export function specText({ kind, ...fields }: FaultSpec): string {
  const parts = Object.entries(fields).map(([name, value]) => {
    return value === true ? name : `${name} ${String(value)}`;
  });
  return [kind, parts.join(', ')].join(' ').trim();
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}
