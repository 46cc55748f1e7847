import { describe, expect, it } from 'vitest';
import { crc32 } from '#daemon/roce/wire/crc32';
import {
  Datagram,
  DatagramRefusal,
  parseDatagram,
  writeDatagramHeaders,
} from '#daemon/roce/wire/datagram';
import { icrcOf, writeIcrc } from '#daemon/roce/wire/icrc';
import { Packet, PacketRefusal, parsePacket, writeHeaders } from '#daemon/roce/wire/packet';
import { hexOf } from '#test/support/hex';
import { recordedDatagrams, recordingNames } from '#test/support/roce-recordings';

describe('every datagram that rxe sent', () => {
  it.each(recordingNames())('in %s is read and written again, ICRC included', (name) => {
    const datagrams = recordedDatagrams(name);
    expect(datagrams.length).toBeGreaterThan(0);
    const datagram = new Datagram();
    const packet = new Packet();
    for (const bytes of datagrams) {
      expect(parseDatagram(bytes, 0, bytes.length, datagram)).toBe(DatagramRefusal.none);
      const { packetStart, packetLength } = datagram;
      expect(parsePacket(bytes, packetStart, packetLength, packet)).toBe(PacketRefusal.none);
      const target = new Uint8Array(bytes.length);
      const payload = writeHeaders(target, writeDatagramHeaders(target, 0, datagram), packet);
      const { payloadStart, payloadLength } = packet;
      target.set(bytes.subarray(payloadStart, payloadStart + payloadLength), payload);
      const end = packetStart + packetLength;
      writeIcrc(target, end, icrcOf(crc32, target, 0, packetStart, end));
      // rxe of 6.1 sends no UDP checksum, over IPv6 either.
      expect(hexOf(target)).toBe(hexOf(bytes));
    }
  });
});
