/**
 * Our transport in the place of rxe's, in every recording of `test/vectors/roce`: given the same
 * input, it sends the same bytes. Tables in this file list the exceptions, with their reasons.
 *
 * The comparison ignores whether a packet requests an acknowledgment, except the last one of a
 * message, and the second NAKs of rxe after an RNR NAK. Reads are requested whole, and each request
 * is answered before the next one arrives, so that no acknowledgment is coalesced.
 */
import { describe, expect, it } from 'vitest';
import { MessageFailure } from '#daemon/rnic/wire-port';
import { opcodeName, Service } from '#daemon/roce/wire/opcode';
import { bytesOf } from '#test/support/hex';
import { flowsOfRecording, recordingNames } from '#test/support/roce-recordings';
import { type ReplayOptions, replayRequester, replayResponder } from '#test/support/roce-replay';

const UNKNOWN_KEY = 0xdead00;
/** Options that `rxe-traffic.c` requests. */
const OPTIONS: Readonly<Record<string, ReplayOptions>> = {
  'opcodes-ipv4': { minRnrTimer: 14, unknownKey: UNKNOWN_KEY },
  'opcodes-ipv6': { minRnrTimer: 14, unknownKey: UNKNOWN_KEY },
  rnr: { minRnrTimer: 14 },
  refused: { receiveBytes: 2048, unknownKey: UNKNOWN_KEY },
};

/** Our answers that differ from rxe's only in the MSN, by recording, flow and answer. */
const OTHER_MSN: ReadonlyMap<string, string> = new Map([
  ...['opcodes-ipv4', 'opcodes-ipv6'].flatMap((name) => [
    [
      `${name} 2 0`,
      'rxe does not count a Send whose invalidation failed; it was received',
    ] as const,
    [`${name} 3 0`, 'the same'] as const,
  ]),
  ['damaged-requests 0 36', 'we repeat the whole answer to an atomic, rxe with the MSN of now'],
]);
const MSN_BYTES = { start: 13, end: 16 };

/** Recordings named `cm-` are for `daemon/roce/cm`; their connections are like all others. */
const NAMES = recordingNames().filter((name) => !name.startsWith('cm-'));

/** Whether two answers have the same bytes but for the MSN. */
function differInMsn(ours: string, recorded: string): boolean {
  const [a, b] = [ours, recorded].map((text) => bytesOf(text));
  if (a === undefined || b === undefined) return false;
  for (const bytes of [a, b]) bytes.fill(0, MSN_BYTES.start, MSN_BYTES.end);
  return ours !== recorded && a.join() === b.join();
}

/** Describes a packet, for the message of a failed comparison. */
function named(text: string): string {
  return text === 'nothing' ? text : `${opcodeName(bytesOf(text)[0] ?? 0)} ${text}`;
}

const used = new Set<string>();

describe('our responder in the place of rxe', () => {
  const asked = NAMES.filter((name) => name !== 'damaged-answers').flatMap((name) =>
    flowsOfRecording(name).map((flow, index) => ({ name, flow, index })),
  );

  it.each(asked.filter(({ flow }) => flow.service === Service.rc))(
    'sends the replies of $name, connection $index [ROCE-ACK-01, ROCE-ACK-02, ROCE-NAK-01, ROCE-READ-02]',
    ({ name, flow, index }) => {
      const { ours, recorded } = replayResponder(flow, OPTIONS[name]);
      const expected = recorded.map((text, at) => {
        const place = `${name} ${index} ${at}`;
        if (!OTHER_MSN.has(place)) return named(text);
        used.add(place);
        expect(differInMsn(ours[at] ?? '', text), place).toBe(true);
        return named(ours[at] ?? '');
      });
      expect(ours.map(named)).toEqual(expected);
      expect(ours.length).toBeGreaterThan(0);
    },
  );

  it('differs only at known places, each for a reason', () => {
    expect([...used].sort()).toEqual([...OTHER_MSN.keys()].sort());
  });
});

describe('our requester in the place of rxe', () => {
  const asking = NAMES.filter((name) => name !== 'damaged-requests').flatMap((name) =>
    flowsOfRecording(name).map((flow, index) => ({ name, flow, index })),
  );
  const ends: Readonly<Record<string, readonly MessageFailure[]>> = {
    'opcodes-ipv4 1': [MessageFailure.remoteAccess],
    'opcodes-ipv6 1': [MessageFailure.remoteAccess],
    'refused 0': [MessageFailure.remoteAccess],
    'refused 1': [MessageFailure.remoteAccess],
    'refused 2': [MessageFailure.remoteAccess],
    'refused 3': [MessageFailure.remoteAccess],
    'refused 4': [MessageFailure.remoteOperation],
  };
  // Its last Send is never received, and rxe gave up earlier than configured here.
  const unfinished = ['opcodes-ipv4 0', 'opcodes-ipv6 0'];

  it.each(asking)(
    'sends the requests of $name, connection $index [ROCE-MTU-01, ROCE-OPC-02, ROCE-PSN-04, ROCE-READ-07]',
    ({ name, flow, index }) => {
      const { ours, recorded, posted, done, failures } = replayRequester(flow);
      expect(ours.map(named)).toEqual(recorded.map(named));
      const failed = ends[`${name} ${index}`] ?? [];
      expect(failures).toEqual(failed);
      const short = unfinished.includes(`${name} ${index}`) ? 1 : failed.length;
      expect(done).toBe(posted - short);
    },
  );
});
