import { describe, expect, it } from 'vitest';
import { headerBytes, opcodeTraits, Trait } from '#daemon/roce/wire/opcode';
import {
  Packet,
  PacketRefusal,
  packetBytes,
  paddingBytes,
  parsePacket,
  writeHeaders,
} from '#daemon/roce/wire/packet';
import { bytesOf, concat, hexOf } from '#test/support/hex';

/** Opcodes by hand from IBTA table 38: what follows the base header. */
const HEADERS: Readonly<Record<string, readonly number[]>> = {
  none: [0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0e, 0x20, 0x21, 0x22, 0x24, 0x27, 0x28],
  ImmDt: [0x03, 0x05, 0x09, 0x23, 0x25, 0x29],
  RETH: [0x06, 0x0a, 0x0c, 0x26, 0x2a],
  'RETH ImmDt': [0x0b, 0x2b],
  AETH: [0x0d, 0x0f, 0x10, 0x11],
  'AETH AtomicAckETH': [0x12],
  AtomicETH: [0x13, 0x14],
  IETH: [0x16, 0x17],
  DETH: [0x64],
  'DETH ImmDt': [0x65],
};

/** A value for each field of each header, and its bytes. */
const HEADER_VALUES: Readonly<Record<string, readonly [string, Partial<Packet>]>> = {
  none: ['', {}],
  ImmDt: ['deadbeef', { immediate: 0xdeadbeef }],
  RETH: [
    'f1f2f3f4f5f6f7f8 c1c2c3c4 80000000',
    { vaHi: 0xf1f2f3f4, vaLo: 0xf5f6f7f8, rkey: 0xc1c2c3c4, dmaLength: 0x80000000 },
  ],
  AETH: ['1f fedcba', { syndrome: 0x1f, msn: 0xfedcba }],
  AtomicAckETH: ['8182838485868788', { originalHi: 0x81828384, originalLo: 0x85868788 }],
  AtomicETH: [
    'f1f2f3f4f5f6f7f8 c1c2c3c4 9192939495969798 a1a2a3a4a5a6a7a8',
    {
      vaHi: 0xf1f2f3f4,
      vaLo: 0xf5f6f7f8,
      rkey: 0xc1c2c3c4,
      swapAddHi: 0x91929394,
      swapAddLo: 0x95969798,
      compareHi: 0xa1a2a3a4,
      compareLo: 0xa5a6a7a8,
    },
  ],
  IETH: ['b1b2b3b4', { invalidateRkey: 0xb1b2b3b4 }],
  DETH: ['80010203 00 c00001', { qkey: 0x80010203, sourceQpn: 0xc00001 }],
};

const BASE: Partial<Packet> = {
  solicited: true,
  migrated: true,
  pkey: 0x7fff,
  fecn: true,
  becn: false,
  destQpn: 0xabcdef,
  ackRequest: true,
  psn: 0x876543,
};
/** The base header of `BASE` after opcode and flags. */
const BASE_TAIL = '7fff 80 abcdef 80 876543';

function payloadOf(opcode: number): number {
  const traits = opcodeTraits(opcode);
  if ((traits & Trait.payload) === 0) return 0;
  return (traits & Trait.ends) === 0 ? 512 : 5;
}

/** Golden bytes of a packet with this opcode, and the fields that they encode. */
function golden(opcode: number, headers: string): { bytes: Uint8Array; fields: Partial<Packet> } {
  const payloadLength = payloadOf(opcode);
  const padding = payloadLength === 5 ? 3 : 0;
  const first = hexOf(Uint8Array.of(opcode, 0xc0 | (padding << 4)));
  const parts = headers.split(' ').map((name) => HEADER_VALUES[name] ?? ['', {}]);
  const fields = Object.assign({}, BASE, ...parts.map(([, values]) => values), { opcode });
  const text = `${first} ${BASE_TAIL} ${parts.map(([bytes]) => bytes).join(' ')}`;
  const body = bytesOf(`${payloadLength === 0 ? '' : `5a*${payloadLength}`} 00*${padding}`);
  return { bytes: concat(bytesOf(text), body), fields: { ...fields, payloadLength } };
}

const ALL = Object.entries(HEADERS).flatMap(([headers, opcodes]) =>
  opcodes.map((opcode) => ({ opcode, headers, ...golden(opcode, headers) })),
);

function parse(bytes: Uint8Array): PacketRefusal {
  return parsePacket(bytes, 0, bytes.length, new Packet());
}

describe('RoCE packets', () => {
  it('has the 37 opcodes of RC, UC and UD', () => {
    expect(ALL).toHaveLength(37);
    const known = new Set(ALL.map(({ opcode }) => opcode));
    for (let opcode = 0; opcode < 256; opcode += 1) {
      expect(opcodeTraits(opcode) !== 0, `0x${opcode.toString(16)}`).toBe(known.has(opcode));
    }
  });

  it.each(ALL)('reads opcode $opcode with $headers', ({ bytes, fields }) => {
    const packet = new Packet();
    const shifted = concat(Uint8Array.of(1, 2, 3), bytes, Uint8Array.of(9));
    expect(parsePacket(shifted, 3, bytes.length, packet)).toBe(PacketRefusal.none);
    expect(packet).toMatchObject(fields);
    expect(packet.payloadStart).toBe(3 + headerBytes(packet.opcode));
  });

  it.each(ALL)('writes opcode $opcode with $headers', ({ bytes, fields }) => {
    const packet = Object.assign(new Packet(), fields);
    const target = new Uint8Array(bytes.length + 6).fill(0xa5);
    const at = writeHeaders(target, 2, packet);
    expect(at).toBe(2 + headerBytes(packet.opcode));
    expect(hexOf(target.subarray(2, at))).toBe(hexOf(bytes.subarray(0, at - 2)));
    expect(hexOf(target.subarray(at, at + 4))).toBe('a5a5a5a5');
    expect(hexOf(target.subarray(0, 2))).toBe('a5a5');
    expect(packetBytes(packet)).toBe(bytes.length);
  });

  it.each(ALL)(
    'refuses opcode $opcode with any byte of its headers missing',
    ({ bytes, opcode }) => {
      for (let length = 0; length < headerBytes(opcode); length += 1) {
        expect(parsePacket(bytes, 0, length, new Packet()), `${length}`).toBe(
          PacketRefusal.truncated,
        );
      }
      expect(parsePacket(bytes, 4, bytes.length, new Packet())).toBe(PacketRefusal.truncated);
      expect(parsePacket(bytes, -1, bytes.length, new Packet())).toBe(PacketRefusal.truncated);
    },
  );

  it('ignores reserved bits', () => {
    const plain = bytesOf('64 00 ffff 00 000011 00 000001 11111111 00 000022');
    const noisy = bytesOf('64 00 ffff 3f 000011 7f 000001 11111111 ff 000022');
    const packets = [plain, noisy].map((bytes) => {
      const packet = new Packet();
      expect(parsePacket(bytes, 0, bytes.length, packet)).toBe(PacketRefusal.none);
      return packet;
    });
    expect(packets[1]).toEqual(packets[0]);
  });

  it('refuses a version other than 0', () => {
    expect(parse(bytesOf('04 01 ffff 00 000011 00 000001'))).toBe(PacketRefusal.version);
    expect(parse(bytesOf('04 08 ffff 00 000011 00 000001'))).toBe(PacketRefusal.version);
  });

  it('refuses reliable datagrams, raw packets, notifications and reserved opcodes', () => {
    for (const opcode of ['15', '18', '1c', '1f', '2c', '36', '40', '66', '81', 'c0', 'ff']) {
      expect(parse(bytesOf(`${opcode} 00 ffff 00 000011 00 000001 00*16`)), opcode).toBe(
        PacketRefusal.opcode,
      );
    }
  });

  it('refuses padding that does not match the length', () => {
    const head = '00 ffff 00 000011 00 000001';
    expect(parse(bytesOf(`04 ${head} 00*3`))).toBe(PacketRefusal.padding);
    expect(parse(bytesOf('04 10 ffff 00 000011 00 000001'))).toBe(PacketRefusal.padding);
    expect(parse(bytesOf('11 30 ffff 00 000011 00 000001 1f 000000'))).toBe(PacketRefusal.padding);
    expect(parse(bytesOf('04 30 ffff 00 000011 00 000001 01 00*3'))).toBe(PacketRefusal.none);
  });

  it('refuses payload that the opcode or its place in a message does not allow', () => {
    const head = '00 ffff 00 000011 00 000001';
    expect(parse(bytesOf(`11 ${head} 1f 000000 00*4`))).toBe(PacketRefusal.payloadForbidden);
    expect(parse(bytesOf(`0c ${head} 00*16 00*4`))).toBe(PacketRefusal.payloadForbidden);
    expect(parse(bytesOf(`02 ${head}`))).toBe(PacketRefusal.payloadMissing);
    expect(parse(bytesOf(`0f ${head} 1f 000000`))).toBe(PacketRefusal.payloadMissing);
    for (const size of [0, 252, 260, 1028, 3072]) {
      expect(parse(bytesOf(`01 ${head} 00*${size}`)), `${size}`).toBe(
        PacketRefusal.payloadNotPathMtu,
      );
    }
    for (const size of [256, 512, 1024, 2048, 4096]) {
      expect(parse(bytesOf(`01 ${head} 00*${size}`)), `${size}`).toBe(PacketRefusal.none);
    }
    expect(parse(bytesOf(`04 ${head} 00*4100`))).toBe(PacketRefusal.payloadTooLong);
    expect(parse(bytesOf(`01 ${head} 00*8192`))).toBe(PacketRefusal.payloadTooLong);
    expect(parse(bytesOf(`04 ${head} 00*4096`))).toBe(PacketRefusal.none);
    expect(parse(bytesOf(`04 ${head}`))).toBe(PacketRefusal.none);
  });

  it('refuses the reserved syndromes', () => {
    for (let syndrome = 0; syndrome < 256; syndrome += 1) {
      const ack = bytesOf('11 00 ffff 00 000011 00 000001 00 000000');
      ack[12] = syndrome;
      const allowed = syndrome <= 0x3f || (syndrome >= 0x60 && syndrome <= 0x64);
      expect(parse(ack), `0x${syndrome.toString(16)}`).toBe(
        allowed ? PacketRefusal.none : PacketRefusal.syndrome,
      );
    }
  });

  it('pads payloads to a multiple of 4', () => {
    expect([0, 1, 2, 3, 4, 4095].map(paddingBytes)).toEqual([0, 3, 2, 1, 0, 1]);
  });
});
