import { describe, expect, it } from 'vitest';
import {
  Datagram,
  DatagramRefusal,
  datagramHeaderBytes,
  GRH_AREA_BYTES,
  isIpv4Gid,
  parseDatagram,
  writeDatagramHeaders,
  writeGrhArea,
} from '#daemon/roce/wire/datagram';
import { opcodeName } from '#daemon/roce/wire/opcode';
import {
  Packet,
  PacketRefusal,
  packetBytes,
  parsePacket,
  writeHeaders,
} from '#daemon/roce/wire/packet';
import { bytesOf, hexOf } from '#test/support/hex';
import { recordedDatagrams } from '#test/support/roce-recordings';

const IPV4 = bytesOf(
  '45 28 002c 1234 4000 21 11 0000 0a010001 0a010002 c121 12b7 0018 0000' +
    ' 04 00 ffff 00 000011 80 fffff0 a1a2a3a4',
);

describe.each(['ipv4', 'ipv6'] as const)('the recording of rxe over %s', (family) => {
  const datagrams = recordedDatagrams(`opcodes-${family}`);

  it('has packets of all opcodes, each read and written again to the same bytes', () => {
    const datagram = new Datagram();
    const packet = new Packet();
    const seen = new Set<string>();
    for (const bytes of datagrams) {
      expect(parseDatagram(bytes, 0, bytes.length, datagram)).toBe(DatagramRefusal.none);
      const { packetStart, packetLength } = datagram;
      expect(parsePacket(bytes, packetStart, packetLength, packet)).toBe(PacketRefusal.none);
      seen.add(opcodeName(packet.opcode));
      expect(packetBytes(packet)).toBe(packetLength);
      expect(datagramHeaderBytes(datagram)).toBe(packetStart);

      const target = new Uint8Array(bytes.length).fill(0xa5);
      const at = writeDatagramHeaders(target, 0, datagram);
      const payload = writeHeaders(target, at, packet);
      // Lengths and the IPv4 header's checksum are computed, not copied.
      expect(hexOf(target.subarray(0, payload))).toBe(hexOf(bytes.subarray(0, payload)));
      expect(payload).toBe(packet.payloadStart);
    }
    expect(seen.size).toBe(37);
    expect([...seen].filter((name) => name.startsWith('opcode'))).toEqual([]);
  });

  it('has the fields that the program asked for', () => {
    const datagram = new Datagram();
    const packet = new Packet();
    const packets = datagrams.map((bytes) => {
      parseDatagram(bytes, 0, bytes.length, datagram);
      parsePacket(bytes, datagram.packetStart, datagram.packetLength, packet);
      return { ...packet, ...datagram };
    });
    const [first, second, third] = packets;
    expect(first).toMatchObject({ opcode: 0, psn: 0xfffff0, payloadLength: 256, pkey: 0xffff });
    expect(first).toMatchObject({ trafficClass: 0x28, hopLimit: 64, migrated: false });
    // rxe of 6.1 sends its route's hop limit and no flow label, despite the address vector.
    expect(first?.flowLabel).toBe(0);
    expect(second).toMatchObject({ opcode: 1, psn: 0xfffff1, payloadLength: 256 });
    expect(third).toMatchObject({ opcode: 2, psn: 0xfffff2, payloadLength: 87, ackRequest: true });
    expect(isIpv4Gid(first?.destGid ?? new Uint8Array())).toBe(family === 'ipv4');

    const named = (name: string) => packets.find(({ opcode }) => opcodeName(opcode) === name);
    expect(named('RC CmpSwap')).toMatchObject({
      compareHi: 0x01020304,
      compareLo: 0x05060708,
      swapAddHi: 0x11121314,
      swapAddLo: 0x15161718,
    });
    expect(named('RC FetchAdd')).toMatchObject({ swapAddHi: 0xffffffff, swapAddLo: 0xfffffff0 });
    expect(named('RC RDMA READ Request')).toMatchObject({ dmaLength: 599 });
    expect(named('RC SEND Last with Immediate')).toMatchObject({ immediate: 0xcafe0000 });
    expect(named('RC SEND Only with Invalidate')).toMatchObject({ invalidateRkey: 0xabcd01 });
    expect(named('UD SEND Only')).toMatchObject({ qkey: 0x11111111, hopLimit: 64 });
    const syndromes = new Set(
      packets.filter(({ opcode }) => opcode === 0x11).map(({ syndrome }) => syndrome),
    );
    // ACKs, RNR NAKs with the timer of the receiver, one NAK for a bad key, others for a bad invalidate.
    expect([...syndromes]).toEqual(expect.arrayContaining([0x1f, 0x2e, 0x62]));
  });
});

describe('datagrams', () => {
  const parse = (change: (bytes: Uint8Array) => Uint8Array | undefined) => {
    const copy = Uint8Array.from(IPV4);
    const bytes = change(copy) ?? copy;
    return parseDatagram(bytes, 0, bytes.length, new Datagram());
  };

  it('are refused unless they are whole and carry RoCEv2', () => {
    expect(parse(() => undefined)).toBe(DatagramRefusal.none);
    for (let length = 0; length < IPV4.length; length += 1) {
      const refusal = parse((bytes) => bytes.subarray(0, length));
      expect(refusal, `${length}`).toBe(DatagramRefusal.truncated);
    }
    const set = (at: number, ...values: number[]) =>
      parse((bytes) => {
        bytes.set(values, at);
        return undefined;
      });
    expect(set(0, 0x55)).toBe(DatagramRefusal.version);
    expect(set(0, 0x46)).toBe(DatagramRefusal.options);
    expect(set(6, 0x20)).toBe(DatagramRefusal.fragment);
    expect(set(6, 0x40, 0x01)).toBe(DatagramRefusal.fragment);
    expect(set(9, 6)).toBe(DatagramRefusal.notRoce);
    expect(set(22, 0, 53)).toBe(DatagramRefusal.notRoce);
    expect(set(24, 0, 0x17)).toBe(DatagramRefusal.length);
    expect(set(2, 0, 0x2b)).toBe(DatagramRefusal.length);
    expect(set(2, 0, 0x10)).toBe(DatagramRefusal.truncated);
    expect(parse((bytes) => Uint8Array.of(...bytes, 0, 0))).toBe(DatagramRefusal.none);
    expect(parseDatagram(IPV4, 4, IPV4.length, new Datagram())).toBe(DatagramRefusal.truncated);
    expect(parseDatagram(IPV4, -1, 40, new Datagram())).toBe(DatagramRefusal.truncated);
  });

  it('over IPv6 are refused with extension headers', () => {
    const next = (value: number) => {
      const bytes = bytesOf(
        `60000000 0018 ${value.toString(16).padStart(2, '0')} 40 00*15 01 00*15 02` +
          ' c121 12b7 0018 0000 04 00 ffff 00 000011 80 fffff0 00*4',
      );
      return parseDatagram(bytes, 0, bytes.length, new Datagram());
    };
    expect(next(17)).toBe(DatagramRefusal.none);
    expect([0, 43, 51, 60].map(next)).toEqual(new Array(4).fill(DatagramRefusal.options));
    expect(next(44)).toBe(DatagramRefusal.fragment);
    expect(next(58)).toBe(DatagramRefusal.notRoce);
  });

  it('over IPv6 are refused with an IPv4 address, whose GID would look like one over IPv4', () => {
    const mapped = '00*10 ffff 0a010001';
    for (const addresses of [`${mapped} 00*15 02`, `00*15 01 ${mapped}`]) {
      const bytes = bytesOf(
        `60000000 0018 11 40 ${addresses} c121 12b7 0018 0000 04 00 ffff 00 000011 80 fffff0 00*4`,
      );
      const refusal = parseDatagram(bytes, 0, bytes.length, new Datagram());
      expect(refusal).toBe(DatagramRefusal.address);
    }
  });

  it('become the 40 bytes in front of a received UD message', () => {
    const datagram = new Datagram();
    datagram.packetLength = 24;
    datagram.sourceGid.set(bytesOf('00*10 ffff 0a010001'));
    datagram.destGid.set(bytesOf('00*10 ffff 0a010002'));
    datagram.trafficClass = 0x28;
    const target = new Uint8Array(GRH_AREA_BYTES + 2).fill(0xa5);
    writeGrhArea(target, 1, datagram);
    expect(hexOf(target)).toBe(
      hexOf(bytesOf('a5 00*20 45 28 0038 0000 4000 40 11 2689 0a010001 0a010002 a5')),
    );

    datagram.sourceGid.set(bytesOf('fe80 00*13 01'));
    datagram.destGid.set(bytesOf('fe80 00*13 02'));
    datagram.flowLabel = 0xfffff;
    datagram.hopLimit = 9;
    writeGrhArea(target, 1, datagram);
    expect(hexOf(target)).toBe(
      hexOf(bytesOf('a5 628f ffff 0024 11 09 fe80 00*13 01 fe80 00*13 02 a5')),
    );
  });
});
