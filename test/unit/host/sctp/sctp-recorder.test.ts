import { describe, expect, it } from 'vitest';
import type { TappedPacket } from '#contract/protocol/packet-records';
import { udpEnds } from '#daemon/capture/udp-header';
import { gidBytes } from '#daemon/host/host-addresses';
import type { CarrierSocket } from '#daemon/host/sctp/paths';
import { SctpRecorder } from '#daemon/host/sctp/sctp-recorder';
import { bytesOf } from '#test/support/hex';

/** From port 7 to port 8. */
const SCTP = bytesOf('0007 0008 11223344 55667788 03000010 00000001 ffff0000 00000000');
const PEER_UDP_PORT = 4000;

/** A tap's view of packets of a host with these devices. */
function recorded(
  way: 'in' | 'out',
  [local, remote]: readonly [string, string],
  devices: Readonly<Record<string, string>>,
): TappedPacket[] {
  const packets: TappedPacket[] = [];
  const tap = {
    watched: true,
    packet: (packet: TappedPacket) => packets.push({ ...packet, bytes: packet.bytes.slice() }),
  };
  const recorder = new SctpRecorder(tap, {
    deviceAt: (address) => devices[address],
    queuePairOf: ({ localPort, remotePort }) => {
      return localPort === 7 && remotePort === 8 ? { device: 'seven', qpn: 77 } : undefined;
    },
  });
  const socket = { address: local, port: 9899 } as CarrierSocket;
  recorder.packet(way, socket, gidBytes(remote), PEER_UDP_PORT, SCTP);
  return packets;
}

/** The one's complement sum of 16-bit words, which a right checksum makes 0xffff. */
function sum(bytes: Uint8Array, first = 0): number {
  let total = first;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += 2) total += view.getUint16(at);
  while (total > 0xffff) total = (total & 0xffff) + (total >>> 16);
  return total;
}

describe('a recorder of SCTP packets', () => {
  it('writes IPv4 and UDP headers around a packet that leaves', () => {
    const [packet] = recorded('out', ['10.0.0.1', '10.0.0.2'], { '10.0.0.1': 'a' });
    const bytes = packet?.bytes ?? new Uint8Array(0);
    expect(udpEnds(bytes, 0)).toMatchObject({
      source: '10.0.0.1:9899',
      destination: '10.0.0.2:4000',
      datagramBytes: bytes.length,
    });
    expect(sum(bytes.subarray(0, 20))).toBe(0xffff);
    expect(bytes.subarray(28)).toEqual(SCTP);
    expect(packet).toMatchObject({ sender: { device: 'seven', qpn: 77 }, receiver: undefined });
  });

  it('writes IPv6 headers with UDP’s checksum around one that came', () => {
    const [packet] = recorded('in', ['fd00::1', 'fd00::2'], { 'fd00::1': 'a' });
    const bytes = packet?.bytes ?? new Uint8Array(0);
    expect(udpEnds(bytes, 0)).toMatchObject({
      source: '[fd00::2]:4000',
      destination: '[fd00::1]:9899',
      datagramBytes: bytes.length,
    });
    // The pseudo header: addresses, length and protocol.
    expect(sum(bytes.subarray(8), bytes.length - 40 + 17)).toBe(0xffff);
    // Its local port is 8: no queue pair has the association yet.
    expect(packet).toMatchObject({ sender: undefined, receiver: { device: 'a', qpn: 0 } });
  });

  it('shows a packet between two devices once, with both ends, and no packets of other hosts', () => {
    const both = { '10.0.0.1': 'a', '10.0.0.2': 'b' };
    const [packet] = recorded('out', ['10.0.0.1', '10.0.0.2'], both);
    expect(packet).toMatchObject({ sender: { qpn: 77 }, receiver: { device: 'b', qpn: 0 } });
    expect(recorded('in', ['10.0.0.2', '10.0.0.1'], both)).toEqual([]);
    expect(recorded('out', ['10.0.0.9', '10.0.0.1'], both)).toEqual([]);
  });
});
