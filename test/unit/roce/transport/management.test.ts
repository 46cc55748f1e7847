/** QP 1 of a port: management datagrams. */
import { describe, expect, it } from 'vitest';
import { ManagementWire } from '#daemon/roce/transport/management';
import { PACKET_BYTES_MAX } from '#daemon/roce/transport/packet-wire';
import { Datagram, writeGrhArea } from '#daemon/roce/wire/datagram';
import { Packet, parsePacket } from '#daemon/roce/wire/packet';
import { bytesOf, hexOf } from '#test/support/hex';

const FOUR = [bytesOf('00*10 ffff 0a000001'), bytesOf('00*10 ffff 0a000002')] as const;
const SIX = [bytesOf('fd00 00*13 01'), bytesOf('fd00 00*13 02')] as const;
const MAD = Uint8Array.from({ length: 256 }, (_, index) => index ^ 0x5a);

interface Taken {
  readonly mad: string;
  readonly gids: readonly string[];
}

function wireWith(taken: Taken[]): ManagementWire {
  return new ManagementWire({
    handleMad: (mad, source, dest) => {
      taken.push({ mad: hexOf(mad), gids: [hexOf(source), hexOf(dest)] });
    },
  });
}

/** The first packet that a wire sends for `MAD`. */
function sent(): { packet: Packet; bytes: Uint8Array } {
  const wire = wireWith([]);
  const address = { dgid: FOUR[1] };
  wire.send(address, MAD);
  const bytes = new Uint8Array(PACKET_BYTES_MAX + 8);
  const length = wire.pollPacket(bytes, 8);
  expect(wire.destination).toBe(address);
  expect(wire.pollPacket(bytes, 8)).toBe(0);
  const packet = new Packet();
  expect(parsePacket(bytes, 8, length, packet)).toBe(0);
  return { packet, bytes };
}

function grhOf([source, dest]: readonly [Uint8Array, Uint8Array]): Uint8Array {
  const datagram = new Datagram();
  datagram.sourceGid.set(source);
  datagram.destGid.set(dest);
  const grh = new Uint8Array(40);
  writeGrhArea(grh, 0, datagram);
  return grh;
}

describe('QP 1', () => {
  it('sends a MAD as one packet of UD to QP 1, with its key', () => {
    const { packet } = sent();
    expect(packet).toMatchObject({
      opcode: 0x64,
      destQpn: 1,
      sourceQpn: 1,
      qkey: 0x8001_0000,
      pkey: 0xffff,
      payloadLength: 256,
      psn: 0,
    });
  });

  it.each([
    ['IPv4', FOUR],
    ['IPv6', SIX],
  ] as const)('takes one with the addresses of its datagram: %s', (_, gids) => {
    const taken: Taken[] = [];
    const { packet, bytes } = sent();
    wireWith(taken).handlePacket(packet, bytes, 0, grhOf(gids));
    expect(taken).toEqual([{ mad: hexOf(MAD), gids: gids.map(hexOf) }]);
  });

  it.each<[string, Partial<Packet>]>([
    ["a program's queue pair", { sourceQpn: 2 }],
    ['a sender with another key', { qkey: 0x8001_0001 }],
    ['a sender of immediate data', { opcode: 0x65 }],
  ])('accepts nothing of %s', (_, change) => {
    const taken: Taken[] = [];
    const { packet, bytes } = sent();
    wireWith(taken).handlePacket({ ...packet, ...change }, bytes, 0, grhOf(FOUR));
    expect(taken).toEqual([]);
  });

  it('queues at most 4,096 MADs', () => {
    const wire = wireWith([]);
    const address = { dgid: FOUR[1] };
    for (let count = 0; count < 4096; count += 1) expect(wire.send(address, MAD)).toBe(true);
    expect(wire.send(address, MAD)).toBe(false);
    expect(wire.waiting).toBe(4096);
  });
});
