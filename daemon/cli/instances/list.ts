/** `iwarpd list`: the daemons of this user. */
import { type Output, printJson, tableLines } from '#daemon/console/output';
import { type FoundDaemon, findDaemons } from './found-daemons.ts';

export interface ListArguments {
  readonly json?: boolean;
}

/** Prints the daemons; an empty list is not a failure. */
export async function runList(given: ListArguments, output: Output): Promise<void> {
  const found = await findDaemons();
  if (given.json === true) return printJson(output, { daemons: found.map(recordOf) });
  for (const line of listLines(found)) output.line(line);
}

export function listLines(found: readonly FoundDaemon[]): string[] {
  if (found.length === 0) return ['no daemons'];
  const rows = found.map(({ name, socketPath, state, status, reason }) => [
    name ?? '(run)',
    status === undefined ? '-' : String(status.pid),
    status === undefined ? '-' : sinceText(startOf(status.uptimeSeconds)),
    status?.devices.map(({ device }) => device.name).join(',') ?? reason ?? `(${state})`,
    socketPath,
  ]);
  return tableLines([['name', 'pid', 'since', 'devices', 'socket'], ...rows]);
}

function recordOf({ name, socketPath, state, status, reason }: FoundDaemon): object {
  return {
    name: name ?? null,
    state,
    socketPath,
    ...(reason === undefined ? {} : { reason }),
    ...(status === undefined
      ? {}
      : {
          pid: status.pid,
          version: status.version,
          since: startOf(status.uptimeSeconds).toISOString(),
          devices: status.devices.map(({ device }) => device.name),
          clients: status.clients.length,
        }),
  };
}

function startOf(uptimeSeconds: number): Date {
  return new Date(Date.now() - uptimeSeconds * 1000);
}

/** In local time, in the format of `ls`. */
function sinceText(start: Date): string {
  const two = (part: number): string => String(part).padStart(2, '0');
  const day = [start.getFullYear(), two(start.getMonth() + 1), two(start.getDate())].join('-');
  return `${day} ${two(start.getHours())}:${two(start.getMinutes())}:${two(start.getSeconds())}`;
}
