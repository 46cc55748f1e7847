import { describe, expect, it } from 'vitest';
import { SctpTrace, sctpEnds } from '#daemon/capture/sctp-trace';
import { tableCrc32c } from '#daemon/iwarp/wire/crc32c';
import { bytesOf, hexOf } from '#test/support/hex';
import { Prng } from '#test/support/prng';

/** IPv4 from 10.0.0.1 to 10.0.0.2, then UDP from 5000 to `port`, then SCTP from 7 to 8. */
function datagram(chunks: string, { port = 9899, damaged = false } = {}): Uint8Array {
  const sctp = bytesOf(`0007 0008 11223344 00000000 ${chunks}`);
  const fields = new DataView(sctp.buffer, sctp.byteOffset);
  fields.setUint32(8, tableCrc32c(sctp, 0, sctp.length) + (damaged ? 1 : 0), true);
  const bytes = new Uint8Array(28 + sctp.length);
  const view = new DataView(bytes.buffer);
  bytes.set(bytesOf('45000000 00004000 40110000 0a000001 0a000002 1388'));
  view.setUint16(2, bytes.length);
  view.setUint16(22, port);
  view.setUint16(24, 8 + sctp.length);
  bytes.set(sctp, 28);
  return bytes;
}

const text = (bytes: Uint8Array) => new SctpTrace().take(bytes, 0)?.text;

const SACK = '03000010 00000001 00010000 00000000';
const SACK_BYTES = 16;
/** DATA with B, E and U, stream 0, TSN 1; `message` begins with 4 bytes of header. */
const data = (bytes: number, protocol: number, message: string) => {
  const length = (16 + bytes).toString(16).padStart(4, '0');
  const padding = '00'.repeat((4 - (bytes % 4)) % 4);
  return `0007${length} 00000001 0000 0000 000000${protocol.toString(16)} ${message}${padding}`;
};

/** The same packet directly in IP, as protocol 132. */
function withoutUdp(datagramBytes: Uint8Array): Uint8Array {
  const bytes = Uint8Array.of(...datagramBytes.subarray(0, 20), ...datagramBytes.subarray(28));
  new DataView(bytes.buffer).setUint16(2, bytes.length);
  bytes[9] = 132;
  return bytes;
}

describe('a trace of SCTP', () => {
  it('reads packets in UDP and directly in IP', () => {
    const packet = withoutUdp(datagram(SACK));
    expect(new SctpTrace().take(packet, 0)).toEqual(new SctpTrace().take(datagram(SACK), 0));
    expect(text(packet.subarray(0, packet.length - 4))).toMatch(/cut off$/);
    // A fragment has no header.
    packet[7] = 1;
    expect(text(packet)).toBeUndefined();
    expect(text(withoutUdp(datagram(SACK)).subarray(0, 31))).toBeUndefined();
  });

  it('accepts an absent checksum, for the network card to fill in, except in UDP', () => {
    const empty = datagram(SACK);
    empty.fill(0, 36, 40);
    expect(text(empty)).toBe('bad packet: wrong checksum');
    expect(text(withoutUdp(empty))).toBe('SCTP SACK');
    expect(text(withoutUdp(datagram(SACK, { damaged: true })))).toBe('bad packet: wrong checksum');
  });

  it('names chunks, and the ends by SCTP’s ports', () => {
    const traced = new SctpTrace().take(datagram(SACK), 0);
    expect(traced).toMatchObject({ source: '10.0.0.1:7', destination: '10.0.0.2:8' });
    expect(traced?.text).toBe('SCTP SACK');
    expect(sctpEnds(datagram(SACK), 0)).toMatchObject({ sourcePort: 7, destinationPort: 8 });
    expect(text(datagram('63000004'))).toBe('SCTP chunk 99');
  });

  it('shows segments and session control in DATA', () => {
    // Last and tagged, RDMA Write to STag 5, offset 16, three bytes.
    const write = 'c140 00000005 00000000 00000010 616263';
    const segment = data(19, 16, `0002 ${write}`);
    const control = data(9, 17, '0000 0005 80044008 41');
    const traced = new SctpTrace().take(datagram(`${SACK} ${segment} ${control}`), 0);
    expect(traced).toMatchObject({ kind: 'packet', opcode: 'Write', payloadBytes: 3 });
    expect(traced?.text).toBe(
      'SCTP SACK; DATA SSN 2: Write STag 0x00000005 TO 0x0000000000000010, 3 bytes, last; ' +
        'DATA SSN 0: session Enhanced Initiate, IRD 4, ORD 8, 1 bytes of private data',
    );
  });

  it('names the stream of DATA, unless it is the first', () => {
    const control = data(4, 17, '00030004').replace('0000 0000 0000', '0005 0000 0000');
    expect(text(datagram(control))).toBe('SCTP DATA SSN 3 of stream 5: session Terminate');
  });

  it('shows an unreadable message by its length', () => {
    expect(text(datagram(data(4, 99, '00010203')))).toBe(
      'SCTP DATA SSN 1: payload protocol 99, 2 bytes',
    );
    expect(text(datagram(data(4, 17, '00010203')))).toBe(
      'SCTP DATA SSN 1: session control message of 4 bytes',
    );
    expect(text(datagram(data(1, 16, '00')))).toBe('SCTP DATA, part of a message, 1 bytes');
    const first = data(4, 16, '00010203').replace('0007', '0002');
    expect(text(datagram(first))).toBe('SCTP DATA, part of a message, 4 bytes, ordered');
  });

  it('reports what a receiver drops', () => {
    expect(text(datagram(SACK, { damaged: true }))).toBe('bad packet: wrong checksum');
    for (const chunks of ['0300', '03000003', '03000400 0000', '00070004']) {
      expect(text(datagram(chunks)), chunks).toMatch(/^bad packet: a chunk does not fit/);
    }
  });

  it('reads truncated packets up to their cut', () => {
    const whole = datagram(`${SACK} ${data(4, 17, '00000004')}`);
    expect(text(whole.subarray(0, 60))).toBe('SCTP SACK, cut off');
    for (let length = 0; length < whole.length; length += 1) {
      const traced = new SctpTrace().take(whole.subarray(0, length), 0);
      expect(traced?.text ?? 'cut off').toMatch(/cut off$/);
    }
  });

  it('reads any chunks without throwing', () => {
    const prng = new Prng(9260);
    const chunks = `${SACK} ${data(4, 17, '00000004')} ${data(3, 16, '0001c1')}`;
    const plain = datagram(chunks).subarray(40);
    for (let round = 0; round < 3000; round += 1) {
      const corrupted = plain.slice();
      for (let count = prng.below(8); count >= 0; count -= 1) {
        corrupted[prng.below(corrupted.length)] = prng.below(256);
      }
      expect(text(datagram(hexOf(corrupted)))).toMatch(/^SCTP |^bad packet: /);
    }
  });

  it('ignores datagrams whose IP length has no room for the headers', () => {
    for (const packet of [datagram(SACK), withoutUdp(datagram(SACK))]) {
      const headerBytes = packet.length - SACK_BYTES;
      for (let length = 0; length < packet.length; length += 1) {
        new DataView(packet.buffer).setUint16(2, length);
        if (length < headerBytes) expect(text(packet), `${length} bytes`).toBeUndefined();
        else expect(text(packet)).toBe('bad packet: wrong checksum');
      }
    }
  });

  it('ignores other datagrams', () => {
    expect(text(datagram(SACK, { port: 4791 }))).toBeUndefined();
    expect(text(new Uint8Array(0))).toBeUndefined();
  });
});
