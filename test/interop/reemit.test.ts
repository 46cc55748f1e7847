/**
 * Our side in place of a recorded one: where the protocol leaves no freedom, it sends the same
 * bytes.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readUint32LE } from '#base/checked-bytes';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { captureNames, capturePath, readExpectation } from '../support/expected-captures.ts';
import { NO_BYTES } from '../support/hex.ts';
import { readTcpConnections } from '../support/pcap-reader.ts';
import { type CutFpdu, cutFpdus, reemit } from './captures/reemit.ts';
import { readStartup } from './captures/replay.ts';

const CRC_BYTES = 4;
const SIDES = ['initiator', 'responder'] as const;

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

/** A place where our side sends something else, and why. */
interface Difference {
  readonly fpdu: number;
  /** Our FPDU without the CRC; undefined if we send none. */
  readonly ours: string | undefined;
  readonly why: string;
}

const NOBODY_ASKED = 'a Terminate about memory or programs, which there are none of here';
const READY_TO_RECEIVE = {
  fpdu: 0,
  ours: '000ec140000000000000000000000000',
  why: 'the STag of the ready-to-receive Write means nothing; siw puts a 1 there, we a 0',
};
const DIFFERENCES: Readonly<Record<string, Difference>> = {
  'rping-peer-to-peer initiator': READY_TO_RECEIVE,
  'iwarpd-server-peer-to-peer initiator': READY_TO_RECEIVE,
  'iwarpd-terminate responder': { fpdu: 0, ours: undefined, why: NOBODY_ASKED },
  'iwarpd-terminated responder': { fpdu: 1, ours: undefined, why: NOBODY_ASKED },
  'reads-queued-zero responder': {
    fpdu: 44,
    ours: '000ec142b226880000007f62e4ceb000',
    why: 'siw answers a queued Read of nothing with the length of the one before',
  },
  'reads-queued-zero initiator': {
    fpdu: 4,
    ours: '00264147000000000000000200000001000000001101c000019ec142b226880000007f62e4ceb000',
    why: "siw's Terminate has M and D elsewhere, and leaves the header out of the segment length",
  },
  'terminate-crc responder': {
    fpdu: 0,
    ours: '001641470000000000000002000000010000000020020000',
    why: "siw's Terminate has layer and type exchanged",
  },
  'terminate-local initiator': { fpdu: 1, ours: undefined, why: NOBODY_ASKED },
  'terminate-read-stag responder': { fpdu: 0, ours: undefined, why: NOBODY_ASKED },
  'terminate-send-too-long responder': { fpdu: 0, ours: undefined, why: NOBODY_ASKED },
  'terminate-write-stag responder': { fpdu: 0, ours: undefined, why: NOBODY_ASKED },
};

/** An FPDU without its CRC, and with a PAD of zeros, which siw does not always send. */
function essence({ bytes, pad }: CutFpdu): string {
  const body = Uint8Array.from(bytes.subarray(0, bytes.length - CRC_BYTES));
  return hex(body.fill(0, body.length - pad.length));
}

/** Our expected output: the recorded one, except for the difference. */
function expectedOf(recorded: readonly CutFpdu[], difference: Difference | undefined): string[] {
  const expected = recorded.map(essence);
  if (difference === undefined) return expected;
  expect(expected[difference.fpdu], difference.why).not.toBe(difference.ours);
  const { fpdu, ours } = difference;
  return expected.toSpliced(fpdu, 1, ...(ours === undefined ? [] : [ours]));
}

/** MPA-4.1-03, MPA-4.4-07: a PAD of zeros; a right CRC, or an empty field where CRCs are off. */
function expectTrailer({ bytes, pad }: CutFpdu, crcEnabled: boolean): void {
  expect(pad.every((byte) => byte === 0)).toBe(true);
  const crcAt = bytes.length - CRC_BYTES;
  const field = crcEnabled ? crc32c(bytes.subarray(0, crcAt)) : 0;
  expect(readUint32LE(bytes, crcAt)).toBe(field);
}

const captures = captureNames().filter((name) => readExpectation(name).connections.length > 0);

describe.each(captures)('recording %s', (name) => {
  const expected = readExpectation(name);
  const connections = readTcpConnections(readFileSync(capturePath(name))).filter(
    ({ initiator }) => hex(initiator.bytes.subarray(0, 4)) === '4d504120',
  );
  for (const [index, connection] of expected.connections.entries()) {
    it.each(SIDES)(`our %s sends the same bytes, connection ${index}`, (role) => {
      const tcp = connections[index];
      if (tcp === undefined) throw new Error('the connection is not there');
      const own = role === 'initiator' ? tcp.initiator : tcp.responder;
      const { end } = readStartup(own.bytes, role === 'initiator' ? 'request' : 'reply');
      const ours = reemit(tcp, role, connection[role].startup);
      const recorded = cutFpdus(own.bytes, end);
      expect(hex(ours.startup)).toBe(hex(own.bytes.subarray(0, end)));
      const difference = DIFFERENCES[`${name} ${role}`];
      expect(ours.fpdus.map(essence)).toEqual(expectedOf(recorded, difference));
      for (const [at, fpdu] of ours.fpdus.entries()) {
        expectTrailer(fpdu, connection.responder.startup.crc);
        const line = connection[role].fpdus[at] ?? '';
        const same = at !== difference?.fpdu && !/ pad=| crc=wrong/.test(line);
        if (same) expect(hex(fpdu.bytes)).toBe(hex(recorded[at]?.bytes ?? NO_BYTES));
      }
    });
  }
});
