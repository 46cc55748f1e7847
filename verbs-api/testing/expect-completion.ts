/** A completion that a test expects, and what to tell when another one comes, or none. */
import { setTimeout as pause } from 'node:timers/promises';
import type { WC } from '../contract/completion.ts';
import { WC_STATUS_TEXT, WCOpcode, WCStatus } from '../contract/enums.ts';
import type { CQ } from '../contract/provider.ts';
import { asyncEventLog } from './async-event-log.ts';
import { daemonGone } from './daemon-registry.ts';
import { type WaitOptions, within } from './waiting.ts';

/** An event may come right behind the completion that it explains. */
const EVENT_GRACE_MS = 50;

/** What a completion has to be; fields that are not given may be anything. */
export interface ExpectedCompletion {
  /** Default: success. */
  readonly status?: WCStatus;
  readonly opcode?: WCOpcode;
  readonly wrId?: bigint | number;
  /** Octets moved. */
  readonly byteLen?: number;
  readonly qpNum?: number;
  /** Bits of `WCFlag`, all of them. */
  readonly wcFlags?: number;
  readonly immData?: bigint | number;
  readonly invalidatedRkey?: number;
}

/** Another completion came than was expected, or none in time. The message tells it all. */
export class CompletionMismatchError extends Error {
  override readonly name = 'CompletionMismatchError';
  readonly expected: ExpectedCompletion;
  /** The completion that came; undefined for none. */
  readonly actual: WC | undefined;

  /** `actual` undefined: none came. */
  constructor(message: string, expected: ExpectedCompletion, actual: WC | undefined) {
    super(message);
    this.expected = expected;
    this.actual = actual;
  }
}

/**
 * Takes the next completion, and only that one, and resolves with it if it is as expected.
 *
 * Rejects with `CompletionMismatchError` when it is not or none comes in time, with
 * `DaemonEndedError` when the private daemon ended, else as `CQ.wait`. For the message the context's
 * asynchronous events are read: from then on, take them from `asyncEventLog`.
 */
export async function expectCompletion(
  cq: CQ,
  expected: ExpectedCompletion = {},
  options: WaitOptions = {},
): Promise<WC> {
  const timedOut = (timeoutMs: number): Promise<Error> =>
    mismatch(cq, expected, undefined, [`  none within ${timeoutMs} ms`]);
  const gone = daemonGone(cq.context.provider);
  // What was delivered before a daemon ended is still there.
  const delivered = cq.poll(1);
  const [wc] =
    delivered.length > 0
      ? delivered
      : await within({ ...options, daemonGone: gone, timedOut }, (signal) =>
          cq.wait({ max: 1, signal }),
        );
  if (wc === undefined) throw await mismatch(cq, expected, undefined, ['  none']);
  const differences = differencesOf(expected, wc);
  if (differences.length > 0) throw await mismatch(cq, expected, wc, differences);
  return wc;
}

async function mismatch(
  cq: CQ,
  expected: ExpectedCompletion,
  actual: WC | undefined,
  differences: readonly string[],
): Promise<CompletionMismatchError> {
  const log = asyncEventLog(cq.context);
  await pause(EVENT_GRACE_MS);
  const lines = [
    `expected the completion: ${completionText({ status: WCStatus.success, ...expected })}`,
    `but got: ${actual === undefined ? 'none' : completionText(shown(actual))}`,
    ...differences,
    `  ${log.describe()}`,
  ];
  return new CompletionMismatchError(lines.join('\n'), expected, actual);
}

type Field = keyof ExpectedCompletion;

const FIELDS: readonly Field[] = [
  'status',
  'opcode',
  'wrId',
  'byteLen',
  'qpNum',
  'wcFlags',
  'immData',
  'invalidatedRkey',
];

function differencesOf(expected: ExpectedCompletion, actual: WC): string[] {
  const wanted: ExpectedCompletion = { status: WCStatus.success, ...expected };
  return FIELDS.flatMap((field) => {
    const value = wanted[field];
    if (value === undefined || BigInt(value) === BigInt(actual[field])) return [];
    const [want, got] = [valueText(field, value), valueText(field, actual[field])];
    return [`  ${field}: expected ${want}, got ${got}`];
  });
}

/** The fields of a completion that are worth telling. */
function shown(wc: WC): ExpectedCompletion {
  const { status, opcode, wrId, byteLen, qpNum, wcFlags, immData, invalidatedRkey } = wc;
  const flagged = wcFlags === 0 ? {} : { wcFlags, immData, invalidatedRkey };
  return { status, opcode, wrId, byteLen, qpNum, ...flagged };
}

function completionText(wc: ExpectedCompletion): string {
  return FIELDS.flatMap((field) => {
    const value = wc[field];
    return value === undefined ? [] : [`${field} ${valueText(field, value)}`];
  }).join(', ');
}

const OPCODES = new Map<number, string>(
  Object.entries(WCOpcode).map(([name, opcode]) => [opcode, name]),
);
const STATUSES = new Map<number, string>(
  Object.entries(WCStatus).map(([name, status]) => [status, `${name} (${WC_STATUS_TEXT[status]})`]),
);

function valueText(field: Field, value: number | bigint): string {
  const names = field === 'status' ? STATUSES : field === 'opcode' ? OPCODES : undefined;
  return names?.get(Number(value)) ?? `${value}`;
}
