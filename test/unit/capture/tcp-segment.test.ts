import { describe, expect, it } from 'vitest';
import { findTcpSegment } from '#daemon/capture/tcp-segment';
import { bytesOf } from '#test/support/hex';

// Headers written by hand after RFC 791, RFC 8200 and RFC 9293: SYN of 2 bytes "hi".
const TCP = '1388 4e24 00000064 00000000 5002 ffff 0000 0000 6869';
const IPV4 = '45000000 0000 4000 40 06 0000 7f000001 c0a80102'.replace('45000000', '4500002a');
const IPV6 = (next: string, length: string) =>
  `60000000 ${length} ${next} 40 fe800000000000000000000000000001 20010db8000000000001000000000002`;
const EXTENSION = '06 00 000000000000';

const found = {
  sequence: 100,
  syn: true,
  ack: false,
  fin: false,
  rst: false,
  payload: bytesOf('6869'),
  payloadBytes: 2,
};
const inIpv4 = { ...found, source: '127.0.0.1:5000', destination: '192.168.1.2:20004' };
const inIpv6 = { ...found, source: '[fe80::1]:5000', destination: '[2001:db8::1:0:0:2]:20004' };

describe('the TCP segment of a packet', () => {
  it.each([
    ['Ethernet and IPv4', 1, `020000000001 020000000002 0800 ${IPV4} ${TCP}`, inIpv4],
    [
      'two VLAN tags',
      1,
      `020000000001 020000000002 88a8 0001 8100 0002 0800 ${IPV4} ${TCP}`,
      inIpv4,
    ],
    ['padding after it', 1, `020000000001 020000000002 0800 ${IPV4} ${TCP} 00000000`, inIpv4],
    ['Linux cooked', 113, `0000 0304 0006 000000000000 0000 0800 ${IPV4} ${TCP}`, inIpv4],
    [
      'Linux cooked 2',
      276,
      `0800 0000 00000001 0304 00 06 0000000000000000 ${IPV4} ${TCP}`,
      inIpv4,
    ],
    ['BSD loopback', 0, `02000000 ${IPV4} ${TCP}`, inIpv4],
    ['raw IPv6', 101, `${IPV6('06', '0016')} ${TCP}`, inIpv6],
    ['IPv6 with an extension header', 101, `${IPV6('00', '001e')} ${EXTENSION} ${TCP}`, inIpv6],
    [
      'a length that the card would fill in',
      101,
      `${IPV4.replace('4500002a', '45000000')} ${TCP}`,
      inIpv4,
    ],
  ])('is found after %s', (_, linkType, hex, expected) => {
    const packet = bytesOf(hex);
    expect(findTcpSegment(linkType, packet, packet.length)).toEqual(expected);
  });

  it('reports how much of it the recorder left out', () => {
    const packet = bytesOf(`${IPV4} ${TCP}`);
    const cut = findTcpSegment(101, packet.subarray(0, -1), packet.length);
    expect(cut).toMatchObject({ payload: bytesOf('68'), payloadBytes: 2 });
  });

  it.each([
    ['UDP', 101, `${IPV4.replace(' 06 ', ' 11 ')} ${TCP}`],
    ['a fragment', 101, `${IPV4.replace('4000', '2001')} ${TCP}`],
    ['ARP', 1, `020000000001 020000000002 0806 ${IPV4} ${TCP}`],
    ['an unknown link', 9999, `${IPV4} ${TCP}`],
    ['IP version 7', 101, `75${IPV4.slice(2)} ${TCP}`],
    ['a header that is too short', 101, `41${IPV4.slice(2)} ${TCP}`],
    ['a TCP header longer than the packet', 101, `${IPV4} ${TCP.replace('5002', 'f002')}`],
  ])('is absent in %s', (_, linkType, hex) => {
    const packet = bytesOf(hex);
    expect(findTcpSegment(linkType, packet, packet.length)).toBeUndefined();
  });

  it('is never looked for past the end of the packet', () => {
    for (const [linkType, hex] of [
      [1, `020000000001 020000000002 8100 0002 0800 ${IPV4} ${TCP}`],
      [276, `0800 0000 00000001 0304 00 06 0000000000000000 ${IPV4} ${TCP}`],
      [101, `${IPV6('00', '001e')} ${EXTENSION} ${TCP}`],
    ] as const) {
      const packet = bytesOf(hex);
      for (let length = 0; length < packet.length; length++) {
        const segment = findTcpSegment(linkType, packet.slice(0, length), packet.length);
        if (segment !== undefined) expect(segment.payload.length).toBeLessThan(2);
      }
    }
  });
});
