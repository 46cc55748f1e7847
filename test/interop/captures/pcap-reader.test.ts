import { describe, expect, it } from 'vitest';
import { readTcpConnections } from '#test/support/pcap-reader';

const SYN = 0x02;
const ACK = 0x10;
const FIN = 0x01;

/** An Ethernet frame with a TCP packet from one end, 1 or 2, of a connection to the other. */
function frame(version: 4 | 6, from: 1 | 2, sequence: number, flags: number, text = ''): Buffer {
  const payload = Buffer.from(text, 'latin1');
  const tcp = Buffer.alloc(20);
  tcp.writeUInt16BE(from * 1000, 0);
  tcp.writeUInt16BE((3 - from) * 1000, 2);
  tcp.writeUInt32BE(sequence >>> 0, 4);
  tcp.writeUInt8(0x50, 12);
  tcp.writeUInt8(flags, 13);
  const ip = Buffer.alloc(version === 4 ? 20 : 40);
  if (version === 4) {
    ip.writeUInt8(0x45, 0);
    ip.writeUInt16BE(40 + payload.length, 2);
    ip.writeUInt8(6, 9);
    ip.writeUInt8(from, 15);
    ip.writeUInt8(3 - from, 19);
  } else {
    ip.writeUInt8(0x60, 0);
    ip.writeUInt16BE(20 + payload.length, 4);
    ip.writeUInt8(6, 6);
    ip.writeUInt8(from, 23);
    ip.writeUInt8(3 - from, 39);
  }
  const ethernet = Buffer.alloc(14);
  ethernet.writeUInt16BE(version === 4 ? 0x0800 : 0x86dd, 12);
  // Ethernet pads short frames; the IP length says where they end.
  return Buffer.concat([ethernet, ip, tcp, payload, Buffer.alloc(7)]);
}

function pcap(frames: readonly Buffer[]): Buffer {
  const header = Buffer.alloc(24);
  header.writeUInt32BE(0xa1b2c3d4, 0);
  header.writeUInt32BE(1, 20);
  const records = frames.map((bytes) => {
    const record = Buffer.alloc(16);
    record.writeUInt32BE(bytes.length, 8);
    record.writeUInt32BE(bytes.length, 12);
    return Buffer.concat([record, bytes]);
  });
  return Buffer.concat([header, ...records]);
}

function block(type: number, body: Buffer): Buffer {
  const padded = Buffer.concat([body, Buffer.alloc(-body.length & 3)]);
  const head = Buffer.alloc(8);
  head.writeUInt32LE(type, 0);
  head.writeUInt32LE(padded.length + 12, 4);
  return Buffer.concat([head, padded, head.subarray(4)]);
}

function pcapng(frames: readonly Buffer[]): Buffer {
  const section = Buffer.alloc(16);
  section.writeUInt32LE(0x1a2b3c4d, 0);
  const link = Buffer.alloc(8);
  link.writeUInt16LE(1, 0);
  const packets = frames.map((bytes) => {
    const fixed = Buffer.alloc(20);
    fixed.writeUInt32LE(bytes.length, 12);
    fixed.writeUInt32LE(bytes.length, 16);
    return block(6, Buffer.concat([fixed, bytes]));
  });
  return Buffer.concat([block(0x0a0d0d0a, section), block(1, link), ...packets]);
}

/** Late, repeated and overlapping segments around the wrap of the sequence number. */
function conversation(version: 4 | 6): Buffer[] {
  const start = 0xffff_fffd;
  return [
    frame(version, 1, start, SYN),
    frame(version, 2, 77, SYN | ACK),
    frame(version, 1, start + 1, ACK, 'one '),
    frame(version, 1, start + 9, ACK | FIN, 'three'),
    frame(version, 1, start + 1, ACK, 'one two '),
    frame(version, 2, 78, ACK, 'yes'),
    frame(version, 2, 81, ACK | 0x04),
  ];
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');

describe('reading recordings', () => {
  it.each([
    ['pcap, IPv4', pcap(conversation(4))],
    ['pcap, IPv6', pcap(conversation(6))],
    ['pcapng, IPv4', pcapng(conversation(4))],
    ['pcapng, IPv6', pcapng(conversation(6))],
  ])('puts the bytes in order: %s', (_, file) => {
    const [connection, ...others] = readTcpConnections(file);
    expect(others).toEqual([]);
    expect(connection).toMatchObject({ initiatorPort: 1000, responderPort: 2000 });
    expect(text(connection?.initiator.bytes ?? new Uint8Array())).toBe('one two three');
    expect(connection?.initiator.end).toBe('FIN');
    expect(connection?.initiator.segments.map(({ packet, offset }) => [packet, offset])).toEqual([
      [2, 0],
      [3, 8],
      [4, 0],
    ]);
    expect(text(connection?.responder.bytes ?? new Uint8Array())).toBe('yes');
    expect(connection?.responder.end).toBe('RST');
  });

  it('distinguishes two connections of the same ends', () => {
    expect(readTcpConnections(pcap([...conversation(4), ...conversation(4)]))).toHaveLength(2);
  });

  it('refuses a recording that lacks bytes', () => {
    const gap = conversation(4).filter((_, index) => index !== 4);
    expect(() => readTcpConnections(pcap(gap))).toThrow('lacks bytes 4 to 8');
  });
});
