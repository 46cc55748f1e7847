import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ANSWER_BYTES,
  destinationPort,
  initAdaptation,
  judgePacket,
  PACKET_BYTES_MIN,
  Verdict,
  writeAnswer,
} from '#daemon/host/sctp/packet-gate';
import { bytesOf, hexOf } from '#test/support/hex';

/** From port 5000 to port 7174 with a verification tag; its checksum is not checked. */
const header = (tag: string) => `1388 1c06 ${tag} 00000000`;
const TAG = '0a0b0c0d';
/** RFC 9260 section 3.3.2: tag, window, streams, first TSN; the indication of DDP (RFC 5043 section 5.1). */
const INIT_FIELDS = '01020304 00020000 0001 0001 00000009';
const INDICATION = 'c006 0008 00000001';
const INIT = `${header('00000000')} 01 00 001c ${INIT_FIELDS} ${INDICATION}`;
/** A DATA chunk of 5 bytes on stream 1, and padding; a SACK before it. */
const SACK = '03 00 0010 00000001 00010000 0000 0000';
const BARE_DATA = '00 07 0015 00000001 0001 0000 00000010 0001020304';
const DATA = `${BARE_DATA} 000000`;

function judge(text: string): number {
  const packet = bytesOf(text);
  // Within a larger area full of bytes that a parser must not read.
  const bytes = new Uint8Array(packet.length + 64).fill(0xff);
  bytes.set(packet, 32);
  return judgePacket(bytes, 32, packet.length);
}

function answer(text: string): string | undefined {
  const packet = bytesOf(text);
  const target = new Uint8Array(ANSWER_BYTES + 2).fill(0xa5);
  if (!writeAnswer(packet, 0, packet.length, target, 1)) return undefined;
  expect([target[0], target[ANSWER_BYTES + 1]]).toEqual([0xa5, 0xa5]);
  return hexOf(target.subarray(1, ANSWER_BYTES + 1));
}

describe('received packets', () => {
  it('pass if their chunks fit, padded or not at the end', () => {
    expect(judge(`${header(TAG)} ${SACK} ${DATA}`)).toBe(Verdict.pass);
    expect(judge(`${header(TAG)} ${BARE_DATA}`)).toBe(Verdict.pass);
    expect(judge(`${header(TAG)} 0a 00 0004`)).toBe(Verdict.pass);
  });

  it('are recognised as requests for an association, with the adaptation indication [SCTP-5.1-01]', () => {
    expect(judge(INIT)).toBe(Verdict.init);
    const bytes = bytesOf(INIT);
    expect(initAdaptation(bytes, 0)).toBe(1);
    expect(destinationPort(bytes, 0)).toBe(7174);
    const without = `${header('00000000')} 01 00 0014 ${INIT_FIELDS}`;
    expect(judge(without)).toBe(Verdict.init);
    expect(initAdaptation(bytesOf(without), 0)).toBeUndefined();
  });

  it.each<readonly [string, string]>([
    ['chunk longer than the packet', `${header(TAG)} 00 07 0016 00000001 0001 0000 00000010 00`],
    ['chunk without room for its own header', `${header(TAG)} 00 07 0003 00000000`],
    ['half a chunk header after a chunk', `${header(TAG)} 0a 00 0004 0a00`],
    ['INIT with a chunk after it', `${INIT} 0a 00 0004`],
    ['INIT after another chunk', `${header(TAG)} 0a 00 0004 01 00 0014 ${INIT_FIELDS}`],
    ['INIT with a verification tag', INIT.replace(header('00000000'), header(TAG))],
    ['INIT whose tag is zero', INIT.replace('01020304', '00000000')],
    ['INIT without its fields', `${header('00000000')} 01 00 0010 01020304 00020000 00010001`],
    ['parameter longer than its INIT', INIT.replace('c006 0008', 'c006 0009')],
    ['parameter shorter than its header', INIT.replace('c006 0008', 'c006 0003')],
    [
      'parameter of an INIT ACK that does not fit',
      `${header(TAG)} 02 00 001c ${INIT_FIELDS} c006 000c 00000001`,
    ],
    ['port 0', `0000 1c06 ${TAG} 00000000 ${SACK}`],
    ...['0f', '10', '40', '80', '81', '82', 'c0', 'c1', 'c2'].map(
      (type) => [`chunk ${type}, of an extension`, `${header(TAG)} ${type} 00 0004`] as const,
    ),
  ])('are dropped: %s', (_, text) => {
    expect(judge(text)).toBe(Verdict.malformed);
  });

  it('are judged and answered without reading past their end, whatever they contain', () => {
    const packet = fc.uint8Array({ minLength: PACKET_BYTES_MIN, maxLength: 200 });
    fc.assert(
      fc.property(packet, fc.constantFrom(0, 1, 2, 6, 0xc0), (random, type) => {
        random[12] = type;
        const verdict = judgePacket(random, 0, random.length);
        const larger = new Uint8Array(random.length + 64).fill(0xff);
        larger.set(random, 32);
        expect(judgePacket(larger, 32, random.length)).toBe(verdict);
        if (verdict === Verdict.malformed) return;
        if (verdict === Verdict.init) initAdaptation(random, 0);
        writeAnswer(random, 0, random.length, new Uint8Array(ANSWER_BYTES), 0);
      }),
      { numRuns: 5000 },
    );
  });
});

describe('a packet for no association', () => {
  it('is answered by an ABORT with the tag of the INIT', () => {
    expect(answer(INIT)).toBe('1c061388010203040000000006000004');
  });

  it('is answered by an ABORT with the tag that came, and the T bit', () => {
    expect(answer(`${header(TAG)} ${SACK} ${DATA}`)).toBe('1c0613880a0b0c0d0000000006010004');
  });

  it('is answered by a SHUTDOWN COMPLETE, if it is a SHUTDOWN ACK', () => {
    expect(answer(`${header(TAG)} 08 00 0004`)).toBe('1c0613880a0b0c0d000000000e010004');
  });

  it.each(['06', '09', '0b', '0e'])('is not answered with a chunk of type %s', (type) => {
    expect(answer(`${header(TAG)} ${type} 00 0004`)).toBeUndefined();
    expect(answer(`${header(TAG)} ${SACK} ${type} 00 0004`)).toBeUndefined();
  });
});
