/** `iwarpd conform`: tests the wire behaviour of a peer, or serves a tester. */
import { writeFileSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import type { Provider } from '#contract/verbs/provider';
import { CommandFailure, fileFailureText, usageFailure } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { routeSource } from '#native-bridge/libc/tcp-socket';
import { connectDaemon } from '#verbs-api/index';
import { DEFAULT_PORT } from '../rping/rping-protocol.ts';
import {
  conformJson,
  conformJunit,
  isViolation,
  resultLines,
  totalLine,
  type WireReport,
} from './conform-report.ts';
import { IwarpPeer } from './iwarp-peer.ts';
import { IWARP_ROWS } from './iwarp-rows.ts';
import { CM_ROWS } from './roce-cm-rows.ts';
import { RocePeer } from './roce-peer.ts';
import { REQUESTER_ROWS } from './roce-requester-rows.ts';
import { RESPONDER_ROWS } from './roce-responder-rows.ts';
import { WIRE_ROWS } from './roce-wire-rows.ts';
import { type ConformRow, Deviation, type RowResult } from './row.ts';
import { runRows } from './run.ts';
import { serveTarget } from './target.ts';

const ROCE_ROWS: readonly ConformRow<RocePeer>[] = [
  ...CM_ROWS,
  ...WIRE_ROWS,
  ...RESPONDER_ROWS,
  ...REQUESTER_ROWS,
];

/** The options as commander passes them. */
export interface ConformArguments {
  readonly peer?: string;
  readonly serve?: boolean;
  readonly address?: string;
  readonly port?: number;
  readonly from?: string;
  readonly over?: 'roce' | 'iwarp';
  readonly only?: readonly string[];
  readonly patience: number;
  readonly json?: boolean;
  readonly junit?: string;
  readonly list?: boolean;
  readonly native?: boolean;
  readonly socket?: string;
}

/** Runs the command. CommandFailure if the peer does not answer, or does not conform. */
export async function runConform(
  given: ConformArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  checkArguments(given);
  if (given.list === true) {
    for (const row of [...ROCE_ROWS, ...IWARP_ROWS]) output.line(listLine(row));
    return;
  }
  const port = given.port ?? DEFAULT_PORT;
  if (given.serve === true) {
    const provider = await openProvider(given);
    try {
      await serveTarget(provider, { address: given.address ?? '0.0.0.0', port }, output, signal);
    } finally {
      await provider.close();
    }
    return;
  }
  await test(given, given.peer ?? '', port, output, signal);
}

function checkArguments(given: ConformArguments): void {
  const roles = [given.peer !== undefined, given.serve === true, given.list === true];
  if (roles.filter(Boolean).length !== 1) {
    throw usageFailure('give --peer ADDRESS to test a peer, --serve to be one, or --list');
  }
  if (given.serve !== true && (given.native === true || given.socket !== undefined)) {
    throw usageFailure('--native and --socket are for --serve: a tester uses sockets of its own');
  }
  if (given.serve === true && given.native === true && given.socket !== undefined) {
    throw usageFailure('--native uses a real device: leave out --socket');
  }
  const known = new Set([...ROCE_ROWS, ...IWARP_ROWS].map(({ id }) => id));
  const unknown = given.only?.find((id) => !known.has(id));
  if (unknown !== undefined) {
    throw usageFailure(`no row has the id '${unknown}'; \`iwarpd conform --list\` shows all`);
  }
  if (!isChosen('roce', given) && !isChosen('iwarp', given)) {
    throw usageFailure(`--only names no row of --over ${given.over}`);
  }
  if (given.from === undefined || given.peer === undefined) return;
  if (isIPv6(given.from) !== isIPv6(given.peer)) {
    throw usageFailure('--from and --peer must both be IPv4 addresses, or both IPv6');
  }
}

/** True if rows of this wire are to run. */
function isChosen(wire: 'roce' | 'iwarp', { over, only }: ConformArguments): boolean {
  const rows: readonly ConformRow<never>[] = wire === 'roce' ? ROCE_ROWS : IWARP_ROWS;
  return (
    (over ?? wire) === wire && (only === undefined || rows.some(({ id }) => only.includes(id)))
  );
}

function listLine({ id, level, source, title, needs }: ConformRow<never>): string {
  const sort = level === 'must' ? '' : ` (${level})`;
  return `${id.padEnd(20)} ${title}${sort}  [${source}]${needs === undefined ? '' : ' needs memory'}`;
}

async function openProvider({ native, socket }: ConformArguments): Promise<Provider> {
  if (native === true) {
    const { createNative } = await import('#verbs-api/native/native-provider');
    return await createNative();
  }
  return await connectDaemon(socket === undefined ? {} : { socketPath: socket });
}

async function test(
  given: ConformArguments,
  address: string,
  port: number,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  // Also before the test: a wrong file name must not cost a whole run.
  if (given.junit !== undefined) writeJunit(given.junit, '');
  const reports: WireReport[] = [];
  const silent: string[] = [];
  for (const wire of ['roce', 'iwarp'] as const) {
    if (!isChosen(wire, given)) continue;
    try {
      reports.push(await testWire(wire, given, address, port, output, signal));
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      silent.push(error.message);
    }
  }
  if (given.json === true) output.line(conformJson(reports));
  if (given.junit !== undefined) writeJunit(given.junit, conformJunit(reports));
  if (reports.length === 0) {
    throw new CommandFailure(
      `cannot test ${address}: ${silent.join('; ')}; start \`iwarpd conform --serve\` or \`rping -s -P\` there`,
    );
  }
  for (const text of silent) output.note(`not tested: ${text}`);
  const results = reports.flatMap((report) => report.results);
  const broken = results.filter(isViolation);
  if (broken.length === 0) return;
  const ids = broken.map(({ id }) => id).join(', ');
  throw new CommandFailure(`${address} does not conform: ${ids}`);
}

/** Nothing serves this wire at the peer. */
class NoAnswer extends Error {}

async function testWire(
  wire: 'roce' | 'iwarp',
  given: ConformArguments,
  address: string,
  port: number,
  output: Output,
  signal: AbortSignal,
): Promise<WireReport> {
  const startedAt = new Date();
  const results: RowResult[] = [];
  const { patience, only } = given;
  const run = async <Peer extends RocePeer | IwarpPeer>(
    peer: Peer,
    rows: readonly ConformRow<Peer>[],
  ): Promise<boolean> => {
    try {
      const memory = await offersMemory(peer);
      const chosen = rows.filter(({ id }) => only?.includes(id) ?? true);
      for await (const result of runRows(chosen, peer, signal, rowLimitMs(patience))) {
        results.push(result);
        if (given.json !== true) for (const line of resultLines(result)) output.line(line);
      }
      return memory;
    } finally {
      await peer.reset();
      peer.close();
    }
  };
  const memory =
    wire === 'roce'
      ? await run(new RocePeer(sourceOf(given, address), address, port, patience), ROCE_ROWS)
      : await run(new IwarpPeer(given.from, address, port, patience), IWARP_ROWS);
  const name = wire === 'roce' ? 'RoCEv2' : 'iWARP';
  const report: WireReport = { wire: name, address, port, memory, startedAt, results };
  if (given.json !== true) output.line(totalLine(report));
  return report;
}

/**
 * The address that the tester sends from. On loopback, the peer's port is taken at its own address.
 */
function sourceOf({ from }: ConformArguments, address: string): string {
  if (from !== undefined) return from;
  if (address.startsWith('127.'))
    return address === LOOPBACK_SOURCE ? '127.0.0.1' : LOOPBACK_SOURCE;
  const source = routeSource(address, undefined);
  if (source !== address) return source;
  throw new CommandFailure(
    `${address} is an address of this host: test it from another one of this host (--from)`,
  );
}

const LOOPBACK_SOURCE = '127.0.0.77';

/** Enough for a row in which every step waits; ends a row whose peer never stops sending. */
function rowLimitMs(patienceMs: number): number {
  return Math.max(60_000, 40 * patienceMs);
}

/**
 * Connects once; returns whether the peer offers memory. Throws `NoAnswer` if it does not accept.
 */
async function offersMemory(peer: RocePeer | IwarpPeer): Promise<boolean> {
  try {
    const { offer } = await peer.connect();
    return offer !== undefined;
  } catch (error) {
    if (!(error instanceof Deviation)) throw error;
    const wire = peer instanceof RocePeer ? 'RoCEv2' : 'iWARP';
    throw new NoAnswer(`no ${wire} (${error.message})`);
  } finally {
    await peer.reset();
  }
}

function writeJunit(path: string, document: string): void {
  try {
    writeFileSync(path, document);
  } catch (error) {
    throw new CommandFailure(`cannot write ${path}: ${fileFailureText(error)}`, { cause: error });
  }
}
