/** `iwarpd fault`: adds, lists and removes faults of a running daemon. */
import {
  FAULT_KINDS,
  type FaultKind,
  type FaultSpec,
  type FaultStatus,
  faultKind,
} from '#contract/protocol/faults';
import { didYouMean } from '#daemon/console/closest';
import { usageFailure } from '#daemon/console/failure';
import { type Output, printJson, tableLines } from '#daemon/console/output';
import { faultSpec } from '#daemon/control/fault-schemas';
import { inputFault } from '#daemon/control/input-fault';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { optionOf } from './option-name.ts';

export interface FaultArguments {
  readonly socket?: string;
  readonly json?: boolean;
}

/** A fault on a command line: its kind, and its unchecked fields under the names of `FaultSpec`. */
export interface GivenFault {
  readonly kind: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Adds a fault and prints it with its seed. CommandFailure names the wrong option; VerbsError. */
export async function runFaultAdd(
  kind: string,
  given: FaultArguments & Readonly<Record<string, unknown>>,
  output: Output,
): Promise<void> {
  // Options that select the daemon are not fields of the fault.
  const { socket, json, instance: _, allowDaemonUid: __, ...fields } = given;
  const spec = checkedFault({ kind, fields });
  const fault = await queryDaemon('addFault', spec, { socketPath: socket });
  if (json === true) return printJson(output, fault);
  output.line(`fault ${fault.id}: ${specText(fault.spec)}${alwaysText(fault.spec)}`);
}

/** A hint for a fault that affects every packet, which is rarely intended. */
function alwaysText({ kind, nth, every, once, probability }: FaultSpec): string {
  const chosen = [nth, every, once, probability].some((each) => each !== undefined);
  if (chosen || faultKind(kind).place !== 'packet') return '';
  return ' (every packet; --probability 0.05 for one in twenty)';
}

/** The fault described by the options. CommandFailure for a fault that the daemon would reject. */
export function checkedFault({ kind, fields }: GivenFault): FaultSpec {
  const help = 'see `iwarpd fault add --help`';
  if (!Object.hasOwn(FAULT_KINDS, kind)) {
    const meant = didYouMean(kind, Object.keys(FAULT_KINDS));
    throw usageFailure(`unknown fault kind '${kind}'${meant}; ${help}`);
  }
  const needed = faultKind(kind as FaultKind).needs.filter((field) => fields[field] === undefined);
  if (needed.length > 0) {
    throw usageFailure(`fault \`${kind}\` requires ${needed.map(optionOf).join(' and ')}; ${help}`);
  }
  const parsed = faultSpec.safeParse({ ...fields, kind });
  if (parsed.success) return parsed.data;
  const { field, reason } = inputFault(parsed.error);
  throw usageFailure(`${field === '' ? `fault \`${kind}\`` : optionOf(field)}: ${reason}; ${help}`);
}

export async function runFaultList(given: FaultArguments, output: Output): Promise<void> {
  const faults = await queryDaemon('listFaults', {}, { socketPath: given.socket });
  if (given.json === true) printJson(output, { faults });
  else if (faults.length === 0) output.line('no faults');
  else for (const line of faultLines(faults)) output.line(line);
}

/** Removes the fault with a number, or all of them. */
export async function runFaultRemove(
  id: number | undefined,
  given: FaultArguments & { readonly all?: boolean },
  output: Output,
): Promise<void> {
  if ((id === undefined) === (given.all !== true)) {
    throw usageFailure('missing fault number or --all; `iwarpd fault list` prints the numbers');
  }
  const place = { socketPath: given.socket };
  const removed =
    id === undefined
      ? await queryDaemon('removeFaults', {}, place)
      : [await queryDaemon('removeFault', { id }, place)];
  if (given.json === true) printJson(output, { removed });
  else if (removed.length === 0) output.line('no faults');
  for (const { id: number, spec, fired } of given.json === true ? [] : removed) {
    output.line(`removed fault ${number}: ${specText(spec)}; it triggered ${times(fired)}`);
  }
}

export function faultLines(faults: readonly FaultStatus[]): string[] {
  const rows = faults.map(({ id, spec, matched, fired }) => {
    return [String(id), specText(spec), String(matched), String(fired)];
  });
  return tableLines([['id', 'fault', 'occasions', 'triggered'], ...rows]);
}

/** A fault as text: its kind, then its fields by name. */
export function specText({ kind, ...fields }: FaultSpec): string {
  const parts = Object.entries(fields).map(([name, value]) => {
    return value === true ? name : `${name} ${String(value)}`;
  });
  return [kind, parts.join(', ')].join(' ').trim();
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}
