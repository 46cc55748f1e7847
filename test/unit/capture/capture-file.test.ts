import { describe, expect, it } from 'vitest';
import {
  BLOCK_MAX_BYTES,
  type CapturedPacket,
  CaptureError,
  CaptureFileParser,
} from '#daemon/capture/capture-file';
import { bytesOf, concat } from '#test/support/hex';

/** Every packet of a file, fed `step` bytes at a time. */
function packetsOf(file: Uint8Array, step = file.length): CapturedPacket[] {
  const parser = new CaptureFileParser();
  const packets: CapturedPacket[] = [];
  for (let at = 0; at < file.length; at += step) {
    parser.push(file.slice(at, at + step));
    for (let packet = parser.poll(); packet !== undefined; packet = parser.poll()) {
      packets.push({ ...packet, bytes: packet.bytes.slice() });
    }
  }
  parser.finish();
  return packets;
}

// Headers written by hand after the formats' drafts; the packet is "abc", cut from 5 bytes.
const PCAP_LITTLE = bytesOf(
  'd4c3b2a1 0200 0400 00000000 00000000 00000400 01000000  02000000 03000000 03000000 05000000 616263',
);
const PCAP_BIG_NANOS = bytesOf(
  'a1b23c4d 0002 0004 00000000 00000000 00040000 00000065  00000002 00000bb8 00000003 00000005 616263',
);
const SECTION_LITTLE = '0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000';
const SECTION_BIG = '0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c';
const INTERFACE_LITTLE = '01000000 14000000 0100 0000 00000400 14000000';
// if_tsresol 9: nanoseconds.
const INTERFACE_BIG_NANOS =
  '00000001 00000020 0071 0000 00040000 0009 0001 09000000 0000 0000 00000020';
const PACKET_LITTLE =
  '06000000 24000000 00000000 00000000 83841e00 03000000 05000000 61626300 24000000';
const PACKET_BIG =
  '00000006 00000024 00000000 00000000 773593b8 00000003 00000005 61626300 00000024';
const UNKNOWN_LITTLE = '05000000 10000000 deadbeef 10000000';
const SIMPLE_LITTLE = '03000000 14000000 03000000 61626300 14000000';

const abc = { bytes: bytesOf('616263'), originalBytes: 5 };

describe('capture files', () => {
  it.each([
    ['pcap, little-endian, microseconds', PCAP_LITTLE, 1, 2_000_003_000n],
    ['pcap, big-endian, nanoseconds', PCAP_BIG_NANOS, 101, 2_000_003_000n],
    [
      'pcapng, little-endian, microseconds by default',
      bytesOf(`${SECTION_LITTLE} ${INTERFACE_LITTLE} ${UNKNOWN_LITTLE} ${PACKET_LITTLE}`),
      1,
      2_000_003_000n,
    ],
    [
      'pcapng, big-endian, nanoseconds by its option',
      bytesOf(`${SECTION_BIG} ${INTERFACE_BIG_NANOS} ${PACKET_BIG}`),
      113,
      1_999_999_928n,
    ],
  ])('are read: %s', (_, file, linkType, timeNanos) => {
    const expected = [{ ...abc, linkType, timeNanos }];
    expect(packetsOf(file)).toEqual(expected);
    for (const step of [1, 3, 16]) expect(packetsOf(file, step)).toEqual(expected);
  });

  it('may have several sections, each with its byte order and interfaces', () => {
    const file = bytesOf(
      `${SECTION_LITTLE} ${INTERFACE_LITTLE} ${PACKET_LITTLE} ${SECTION_BIG} ${INTERFACE_BIG_NANOS} ${PACKET_BIG}`,
    );
    expect(packetsOf(file).map(({ linkType }) => linkType)).toEqual([1, 113]);
  });

  it('may have simple packets, without a time', () => {
    const file = bytesOf(`${SECTION_LITTLE} ${INTERFACE_LITTLE} ${SIMPLE_LITTLE}`);
    expect(packetsOf(file)).toEqual([{ ...abc, originalBytes: 3, linkType: 1, timeNanos: 0n }]);
  });

  it.each([
    ['something else', bytesOf('1f8b0800 00000000'), 'not a pcap or pcapng file at byte 0'],
    ['nothing', new Uint8Array(0), 'not a pcap or pcapng file at byte 0'],
    ['three bytes', bytesOf('d4c3b2'), 'not a pcap or pcapng file at byte 0'],
    [
      'a record that is cut off',
      PCAP_LITTLE.subarray(0, -1),
      'the file ends inside a record at byte 24',
    ],
    [
      'a record of 4 GiB',
      concat(PCAP_LITTLE, bytesOf('00000000 00000000 ffffffff ffffffff')),
      'record too long: 4294967295 bytes at byte 43',
    ],
    [
      'a block shorter than its head',
      bytesOf(`${SECTION_LITTLE} 01000000 08000000 08000000`),
      'invalid block length: 8 bytes at byte 28',
    ],
    [
      'a block that is too long',
      bytesOf(`${SECTION_LITTLE} 01000000 04000001 00000000`),
      `invalid block length: ${BLOCK_MAX_BYTES + 4} bytes at byte 28`,
    ],
    [
      'a block whose lengths differ',
      bytesOf(`${SECTION_LITTLE} 05000000 10000000 deadbeef 14000000`),
      'the two lengths of the block differ at byte 28',
    ],
    [
      'a section without a byte order',
      bytesOf('0a0d0d0a 1c000000 00000000 0100 0000 ffffffffffffffff 1c000000'),
      'the section has no byte-order magic at byte 0',
    ],
    [
      'a packet of no interface',
      bytesOf(`${SECTION_LITTLE} ${PACKET_LITTLE}`),
      'the packet names an unknown interface at byte 28',
    ],
    [
      'a packet longer than its block',
      bytesOf(
        `${SECTION_LITTLE} ${INTERFACE_LITTLE} 06000000 24000000 00000000 00000000 00000000 05000000 05000000 61626300 24000000`,
      ),
      'the packet is longer than its block at byte 48',
    ],
  ])('are refused with the place of the fault: %s', (_, file, message) => {
    expect(() => packetsOf(file)).toThrow(CaptureError);
    expect(() => packetsOf(file)).toThrow(message);
  });
});
