/** Expects a completion, and explains when another one arrives, or none. */
import { setTimeout as pause } from 'node:timers/promises';
import {
  LONG,
  memberOf,
  optional,
  options as optionsOf,
  takes,
  UINT32,
  wholeNumber,
} from '#contract/verbs/arguments';
import { opcodeName, statusName, type WC } from '#contract/verbs/completion';
import { WCOpcode, WCStatus } from '#contract/verbs/enums';
import type { CQ } from '#contract/verbs/provider';
import { COMPLETION_QUEUE } from '#contract/verbs/signatures';
import { asyncEventLog } from './async-event-log.ts';
import { daemonGone } from './daemon-registry.ts';
import { WAIT_OPTIONS, type WaitOptions, within } from './waiting.ts';

/** An event may arrive shortly after the completion that it explains. */
const EVENT_GRACE_MS = 50;

/** The expected completion; missing fields match any value. */
export interface ExpectedCompletion {
  /** Default: success. */
  readonly status?: WCStatus | undefined;
  /** The operation that completed. */
  readonly opcode?: WCOpcode | undefined;
  /** The `wrId` of the work request. */
  readonly wrId?: bigint | number | undefined;
  /** Bytes moved. */
  readonly byteLen?: number | undefined;
  /** Number of the queue pair. */
  readonly qpNum?: number | undefined;
  /** Bits of `WCFlag`; all must match. */
  readonly wcFlags?: number | undefined;
  /** The 8 bytes of Immediate Data as a number. */
  readonly immData?: bigint | number | undefined;
  /** The STag that the peer invalidated. */
  readonly invalidatedRkey?: number | undefined;
}

/** Another completion arrived than was expected, or none in time. The message shows both. */
export class CompletionMismatchError extends Error {
  /** Stable code. */
  readonly code = 'mismatch';
  /** The expected completion. */
  readonly expected: ExpectedCompletion;
  /** The completion that arrived; undefined if none did. */
  readonly actual: WC | undefined;

  /** `actual` is undefined if none arrived. */
  constructor(message: string, expected: ExpectedCompletion, actual: WC | undefined) {
    super(message);
    this.expected = expected;
    this.actual = actual;
  }

  override get name(): string {
    return 'CompletionMismatchError';
  }
}

const check = takes('expectCompletion', {
  cq: COMPLETION_QUEUE,
  expected: optional(
    optionsOf<ExpectedCompletion>({
      status: optional(memberOf(WCStatus, 'WCStatus')),
      opcode: optional(memberOf(WCOpcode, 'WCOpcode')),
      wrId: optional(LONG),
      byteLen: optional(wholeNumber(0)),
      qpNum: optional(wholeNumber(0)),
      wcFlags: optional(UINT32),
      immData: optional(LONG),
      invalidatedRkey: optional(UINT32),
    }),
  ),
  options: WAIT_OPTIONS,
});

/**
 * Takes exactly one completion and resolves with it if it matches.
 *
 * Rejects with `CompletionMismatchError` if it does not match or none arrives in time, with
 * `DaemonEndedError` if the private daemon ended, otherwise as `CQ.wait`. The message includes the
 * context's asynchronous events, which this reads: take them from `asyncEventLog` from then on.
 */
export async function expectCompletion(
  cq: CQ,
  expected: ExpectedCompletion = {},
  options: WaitOptions = {},
): Promise<WC> {
  check(cq, expected, options);
  const timedOut = (timeoutMs: number): Promise<Error> =>
    mismatch(cq, expected, undefined, [`  none within ${timeoutMs} ms`]);
  const gone = daemonGone(cq.context.provider);
  // Completions delivered before a daemon ended can still be polled.
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
    ...(actual?.reason === undefined ? [] : [`  reason: ${actual.reason}`]),
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

/** The fields of a completion worth showing. */
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

function valueText(field: Field, value: number | bigint): string {
  if (field === 'status') return statusName(Number(value));
  return field === 'opcode' ? opcodeName(Number(value)) : `${value}`;
}
