/** The recordings of `captures/`, read by our receiver byte by byte, in random splits, and whole. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  captureNames,
  capturePath,
  type ExpectedCapture,
  type ExpectedConnection,
  readExpectation,
} from '../support/expected-captures.ts';
import { readTcpConnections, type TcpConnection, type TcpStream } from '../support/pcap-reader.ts';
import { type Replayed, readStartup, replay } from './captures/replay.ts';

const SIDES = ['initiator', 'responder'] as const;

function isMpa({ initiator }: TcpConnection): boolean {
  return Buffer.from(initiator.bytes.subarray(0, 7)).toString('latin1') === 'MPA ID ';
}

interface Capture {
  readonly expected: ExpectedCapture;
  /** Recorded connections, each with its expectation. */
  readonly pairs: readonly { tcp: TcpConnection; expected: ExpectedConnection }[];
  readonly otherConnections: number;
}

function readCapture(name: string): Capture {
  const expected = readExpectation(name);
  const all = readTcpConnections(readFileSync(capturePath(name)));
  const recorded = all.filter(isMpa);
  expect(recorded, 'MPA connections').toHaveLength(expected.connections.length);
  const pairs = expected.connections.flatMap((connection, index) => {
    const tcp = recorded[index];
    return tcp === undefined ? [] : [{ tcp, expected: connection }];
  });
  return { expected, pairs, otherConnections: all.length - recorded.length };
}

/** Replays both directions of a connection, cut into pieces of these lengths. */
function replayBoth(
  tcp: TcpConnection,
  expected: ExpectedConnection,
  pieceBytes: readonly number[],
): { initiator: Replayed; responder: Replayed } {
  return {
    initiator: replay(tcp.initiator.bytes, 'responder', expected.responder, pieceBytes),
    responder: replay(tcp.responder.bytes, 'initiator', expected.initiator, pieceBytes),
  };
}

/** Lines that the receiver delivers: those before the first wrong CRC. */
function deliverable(fpdus: readonly string[]): readonly string[] {
  const wrong = fpdus.findIndex((line) => line.endsWith('crc=wrong'));
  return wrong < 0 ? fpdus : fpdus.slice(0, wrong);
}

/** Only a wrong CRC, or siw's response to a queued Read of no bytes, may stop a replay. */
function expectedErrorOf(expected: ExpectedCapture, fpdus: readonly string[]): string | undefined {
  if (deliverable(fpdus).length < fpdus.length) return 'mpaCrc';
  const long = expected.quirks.includes('read-of-nothing-answered-long');
  return long && fpdus.some((line) => line.startsWith('ReadResponse')) ? 'ddpBounds' : undefined;
}

function expectDecoded(capture: Capture, pieceBytes: readonly number[]): void {
  for (const { tcp, expected } of capture.pairs) {
    const replayed = replayBoth(tcp, expected, pieceBytes);
    for (const side of SIDES) {
      const { fpdus, error, midFpdu } = replayed[side];
      expect(fpdus).toEqual(deliverable(expected[side].fpdus));
      expect(error?.name).toBe(expectedErrorOf(capture.expected, expected[side].fpdus));
      expect(midFpdu).toBe(false);
    }
  }
}

/** Position in the recording of the packet that holds the byte at `offset` of a stream. */
function packetOf(stream: TcpStream, offset: number): number {
  const holds = (start: number, length: number): boolean =>
    offset >= start && offset < start + length;
  const segment = stream.segments.find((one) => holds(one.offset, one.lengthBytes));
  return segment?.packet ?? Number.POSITIVE_INFINITY;
}

function firstFpduSide(tcp: TcpConnection): ExpectedConnection['firstFpdu'] {
  const initiator = packetOf(tcp.initiator, readStartup(tcp.initiator.bytes, 'request').end);
  const responder = packetOf(tcp.responder, readStartup(tcp.responder.bytes, 'reply').end);
  if (initiator === responder) return 'none';
  return initiator < responder ? 'initiator' : 'responder';
}

/** Errors in the header copies of a Terminate, in the expectations' words. */
function terminateQuirks({ terminate }: Replayed, other: Replayed): string[] {
  if (terminate?.ddpHeader === undefined) return [];
  const header = Buffer.from(terminate.ddpHeader).toString('hex');
  const copied = other.segments.find((segment) => segment.header === header);
  if (copied === undefined) return ['terminate-header-altered'];
  return copied.ulpduLength === terminate.segmentLength ? [] : ['terminate-length-of-payload'];
}

/** The daemon's names of siw's quirks, and those in the expectations. */
const QUIRK_WORDS: Readonly<Record<string, string>> = {
  'siw-terminate-bit-order': 'terminate-bit-order',
  'siw-queued-zero-length-read': 'read-of-nothing-answered-long',
};

function quirksMet(tcp: TcpConnection, expected: ExpectedConnection): string[] {
  const both = replayBoth(tcp, expected, [tcp.initiator.bytes.length]);
  const met = [...terminateQuirks(both.initiator, both.responder)];
  met.push(...terminateQuirks(both.responder, both.initiator));
  for (const side of SIDES) {
    const { fpdus, quirks } = both[side];
    met.push(...[...quirks].flatMap((quirk) => QUIRK_WORDS[quirk] ?? []));
    if (fpdus.some((line) => line.includes(' pad='))) met.push('pad-not-zero');
  }
  if (firstFpduSide(tcp) === 'responder') met.push('responder-sends-first');
  return met;
}

it('has recordings, each with its expectations', () => {
  expect(captureNames().length).toBeGreaterThan(30);
});

describe.each(captureNames())('recording %s', (name) => {
  it('holds the expected connections and startup frames', () => {
    const { expected, pairs, otherConnections } = readCapture(name);
    expect(otherConnections).toBe(expected.otherConnections);
    for (const { tcp, expected: connection } of pairs) {
      expect([tcp.initiatorPort, tcp.responderPort]).toEqual(connection.ports);
      const { initiator, responder } = connection;
      expect(readStartup(tcp.initiator.bytes, 'request').startup).toEqual(initiator.startup);
      expect(readStartup(tcp.responder.bytes, 'reply').startup).toEqual(responder.startup);
      expect([tcp.initiator.end, tcp.responder.end]).toEqual([initiator.end, responder.end]);
      expect(firstFpduSide(tcp)).toBe(connection.firstFpdu);
    }
  });

  it('decodes the same byte by byte [MPA-5.1-05]', () => {
    expectDecoded(readCapture(name), [1]);
  });

  it('decodes the same in random splits [MPA-5.1-05]', () => {
    const capture = readCapture(name);
    const pieces = fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 60 });
    const decodes = fc.property(pieces, (pieceBytes) => expectDecoded(capture, pieceBytes));
    fc.assert(decodes, { seed: 5044, numRuns: 10 });
  });

  it('decodes the same in one piece [MPA-5.1-05]', () => {
    expectDecoded(readCapture(name), [1 << 30]);
  });

  it('shows where siw deviates from the RFCs, and nothing else', () => {
    const { expected, pairs } = readCapture(name);
    const met = pairs.flatMap(({ tcp, expected: connection }) => quirksMet(tcp, connection));
    expect([...new Set(met)].sort()).toEqual([...expected.quirks].sort());
  });

  it('has a Request that our initiator sends byte for byte with the same parameters', () => {
    for (const { tcp, expected } of readCapture(name).pairs) {
      const request = tcp.initiator.bytes.subarray(
        0,
        readStartup(tcp.initiator.bytes, 'request').end,
      );
      const { sent } = replay(tcp.responder.bytes, 'initiator', expected.initiator, [1 << 30]);
      expect(Buffer.from(sent).toString('hex')).toBe(Buffer.from(request).toString('hex'));
    }
  });
});
