import { describe, expect, it } from 'vitest';
import type { LinkAddresses } from '#daemon/capture/capture-tap';
import { PcapngCapture } from '#daemon/capture/pcapng-capture';
import { bytesOf } from '#test/support/hex';
import { readTcpConnections } from '#test/support/pcap-reader';

const IPV4: LinkAddresses = {
  localAddress: '127.0.0.2',
  localPort: 4791,
  remoteAddress: '10.1.2.3',
  remotePort: 33_000,
  dialed: true,
  emssBytes: 1448,
};
const IPV6: LinkAddresses = {
  ...IPV4,
  localAddress: 'fd00::2',
  remoteAddress: 'fe80::9:1%lo',
  dialed: false,
};

function capture(): { tap: PcapngCapture; file: () => Buffer } {
  const pieces: Uint8Array[] = [];
  let micros = 1_700_000_000_999_999;
  const tap = new PcapngCapture({
    write: (bytes) => pieces.push(bytes.slice()),
    nowMicros: () => micros++,
  });
  return { tap, file: () => Buffer.concat(pieces) };
}

describe('pcapng capture', () => {
  it('writes section, interface, packet header and SYN byte by byte as their formats require', () => {
    const { tap, file } = capture();
    tap.opened(IPV4);
    const expected = bytesOf(
      `0a0d0d0a 2c000000 4d3c2b1a 0100 0000 ffffffffffffffff
         0400 0600 697761727064 0000 00000000 2c000000
       01000000 24000000 0100 0000 00000400 0200 0600 697761727064 0000 00000000 24000000
       06000000 60000000 00000000 240a0600 3f822d18 3e000000 3e000000
       020000000002 020000000001 0800
       45000030 00004000 4006afc2 7f000002 0a010203
       12b7 80e8 000003e8 00000000 7002 ffff 0000 0000 020405a8 0103030e 0000 60000000
       06000000 60000000 00000000 240a0600 40822d18`,
    );
    // The SYN-ACK follows a microsecond later.
    expect(file().subarray(0, expected.length)).toEqual(Buffer.from(expected));
  });

  it.each([
    ['IPv4', IPV4],
    ['IPv6', IPV6],
  ])('keeps the bytes of both directions, cut at the segment size, over %s', (_name, addresses) => {
    const { tap, file } = capture();
    const link = tap.opened(addresses);
    const request = Uint8Array.from({ length: 5000 }, (_, index) => index & 0xff);
    link.outbound(request.subarray(0, 10));
    link.inbound(Uint8Array.of(1, 2, 3));
    link.outbound(request.subarray(10));
    link.finished('peer');
    link.finished('us');
    link.closed(false);
    const [connection, ...others] = readTcpConnections(file());
    expect(others).toEqual([]);
    const mine = addresses.dialed ? connection?.initiator : connection?.responder;
    const theirs = addresses.dialed ? connection?.responder : connection?.initiator;
    expect(mine?.bytes).toEqual(request);
    expect(mine?.segments.map(({ lengthBytes }) => lengthBytes)).toEqual([
      10, 1448, 1448, 1448, 646,
    ]);
    expect(theirs?.bytes).toEqual(Uint8Array.of(1, 2, 3));
    expect([mine?.end, theirs?.end]).toEqual(['FIN', 'FIN']);
  });

  it('leaves a gap for bytes that could not be recorded, and reports it at the end', () => {
    const { tap, file } = capture();
    const link = tap.opened(IPV4);
    link.outbound(Uint8Array.of(1));
    link.lost('us', 7);
    link.outbound(Uint8Array.of(2));
    expect(() => readTcpConnections(file())).toThrow('lacks bytes 1 to 8');
    const before = file().length;
    tap.finish(3);
    const statistics = file().subarray(before);
    expect(statistics).toEqual(
      Buffer.from(
        bytesOf(
          `05000000 28000000 00000000 240a0600 ${statistics.subarray(16, 20).toString('hex')}
           0500 0800 0300000000000000 00000000 28000000`,
        ),
      ),
    );
  });

  it('shows a reset, and keeps conversations of one file apart', () => {
    const { tap, file } = capture();
    const first = tap.opened(IPV4);
    const second = tap.opened({ ...IPV4, localAddress: '::ffff:127.0.0.3' });
    first.outbound(Uint8Array.of(1));
    second.outbound(Uint8Array.of(2));
    first.closed(true);
    second.closed(false);
    const connections = readTcpConnections(file());
    expect(connections.map(({ initiator }) => [...initiator.bytes])).toEqual([[1], [2]]);
    expect(connections.map(({ initiator }) => initiator.end)).toEqual(['RST', 'FIN']);
  });
});
