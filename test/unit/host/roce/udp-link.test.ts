/** The link to other hosts on real sockets: its peer is a UDP socket of the test. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { gidBytes } from '#daemon/host/host-addresses';
import { KERNEL_UDP } from '#daemon/host/roce/kernel-udp';
import { linkCounters, RoceCounters } from '#daemon/host/roce/roce-counters';
import { type PacketArrival, UdpLink } from '#daemon/host/roce/udp-link';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { crc32 } from '#daemon/roce/wire/crc32';
import {
  Datagram,
  DatagramRefusal,
  datagramHeaderBytes,
  parseDatagram,
  writeDatagramHeaders,
} from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, readIcrc } from '#daemon/roce/wire/icrc';
import { OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { openUdp } from '#native-bridge/libc/udp-socket';
import { hexOf } from '#test/support/hex';
import { ownAddress } from '#test/support/own-address';
import { until } from '#test/support/patience';
import { mappedGid, PEER } from '#test/support/program-steps';
import { packetOf, portOf, sealedDatagram } from '#test/support/udp-links';

const PORT = 4791;
const [OWN_ADDRESS, THEIR_ADDRESS] = [ownAddress(12), ownAddress(13)];
const OWN = gidBytes(OWN_ADDRESS);
const THEIRS = gidBytes(THEIR_ADDRESS);
/** Other hosts: one floods, one arrives late. */
const [THEIR_ADDRESS_2, THEIR_ADDRESS_3] = [ownAddress(14), ownAddress(15)];
const [FLOOD, LATE] = [gidBytes(THEIR_ADDRESS_2), gidBytes(THEIR_ADDRESS_3)];

/** A datagram to us from a host with this identification in its IP header. */
function datagramOf(
  packet: Uint8Array,
  identification: number,
  sourcePort = PORT,
  sourceGid = THEIRS,
): Uint8Array {
  return sealedDatagram(packet, { sourceGid, destGid: OWN, identification, sourcePort });
}

/** Sends a datagram this many times before the event loop continues. */
function sendAtOnce(from: string, datagram: Uint8Array, times: number): void {
  const { fd } = openUdp(from, PORT, 65_536);
  const batch = new OutgoingBatch(1, datagram.length);
  const to = { name: socketAddress(OWN_ADDRESS, PORT), trafficClass: 0, hopLimit: 0 };
  batch.bytes.set(datagram, batch.slotAt(0));
  batch.add(datagram.length, to);
  for (let count = 0; count < times; count += 1) expect(batch.send(fd, 0)).toBe(1);
  closeDescriptor(fd);
}

const VECTOR: AddressVector = { ...PEER, dgid: THEIRS, sgidIndex: 0, trafficClass: 8, hopLimit: 9 };

describe('the UDP link', () => {
  const port = portOf(OWN);
  let link: UdpLink;
  let peer: Socket;
  let arrivals: { packet: string; arrival: PacketArrival }[];
  /** Packets that had arrived at the end of each turn. */
  let turns: number[];
  let notes: string[];
  let received: { bytes: Uint8Array; port: number }[];

  beforeEach(async () => {
    Object.assign(port.counters, new RoceCounters());
    arrivals = [];
    turns = [];
    notes = [];
    received = [];
    link = new UdpLink(KERNEL_UDP, {
      handleArrival: (_ports, arrival, bytes) => {
        const { start, length } = arrival;
        const copy = { ...arrival, sourceGid: arrival.sourceGid.slice() };
        arrivals.push({ packet: hexOf(bytes.subarray(start, start + length)), arrival: copy });
      },
      handleArrivalsEnd: () => undefined,
      handleInputEnd: () => turns.push(arrivals.length),
      note: (level, text) => notes.push(`${level}: ${text}`),
    });
    peer = createSocket('udp4');
    peer.on('message', (bytes, from) => received.push({ bytes, port: from.port }));
    peer.bind(PORT, THEIR_ADDRESS);
    await once(peer, 'listening');
  });

  afterEach(() => {
    link.close();
    peer.close();
  });

  it('sends packets with the ICRC of the datagram as sent', async () => {
    const path = link.path(port, OWN, VECTOR);
    if (path === undefined) return;
    const packets = [12, 16, 28, 4096, 4124].map((length) => packetOf(length));
    packets.forEach((packet, index) => {
      expect(link.takes(path)).toBe(true);
      link.bytes.set(packet, link.nextStart);
      link.add(packet.length, path, index === 2);
    });
    link.transmit(0);
    await until('all packets', () => received.length === packets.length);
    received.forEach(({ bytes, port: from }, index) => {
      const packet = packets[index] ?? new Uint8Array(0);
      expect(from).toBe(PORT);
      expect(hexOf(bytes.subarray(0, -ICRC_BYTES))).toBe(hexOf(packet));
      // From us to them, the reverse of `datagramOf`.
      const around = new Datagram();
      around.sourceGid.set(OWN);
      around.destGid.set(THEIRS);
      Object.assign(around, { sourcePort: PORT, packetLength: packet.length });
      const whole = new Uint8Array(datagramHeaderBytes(around) + bytes.length);
      const start = writeDatagramHeaders(whole, 0, around);
      whole.set(bytes, start);
      expect(parseDatagram(whole, 0, whole.length, around)).toBe(DatagramRefusal.none);
      const icrc = icrcOf(crc32, whole, 0, start, start + packet.length);
      const sent = readIcrc(whole, start + packet.length);
      expect(sent === icrc, `packet ${index}`).toBe(index !== 2);
    });
  });

  it('keeps packets that the kernel has no room for, and sends them later', async () => {
    const path = link.path(port, OWN, VECTOR);
    if (path === undefined) throw new Error('no path');
    for (const length of [12, 16]) {
      link.bytes.set(packetOf(length), link.nextStart);
      link.add(length, path);
    }
    const full = vi.spyOn(OutgoingBatch.prototype, 'send').mockReturnValue(-11);
    link.transmit(5000);
    expect([link.blocked, link.takes(path), link.deadline]).toEqual([true, false, 6000]);
    expect(link.handleDeadline(5999)).toBe(false);
    expect(link.handleDeadline(6000)).toBe(false);
    expect(link.deadline).toBe(7000);
    // An addition meanwhile would change the waiting packets.
    link.transmit(6500);
    full.mockRestore();
    expect(link.handleDeadline(7000)).toBe(true);
    expect([link.blocked, link.takes(path), link.deadline]).toEqual([false, true, undefined]);
    await until('both datagrams', () => received.length === 2);
    expect(received.map(({ bytes }) => bytes.length)).toEqual([16, 20]);
    expect(port.counters.undeliverable).toBe(0);
  });

  it('accepts packets with any identification, and determines it', async () => {
    link.listen(port, OWN);
    const sizes = [12, 16, 128, 140, 144, 1036, 4124];
    sizes.forEach((size, index) => {
      const identification = index * 9001;
      peer.send(datagramOf(packetOf(size), identification), PORT, OWN_ADDRESS);
    });
    await until('all datagrams', () => arrivals.length === sizes.length);
    arrivals.forEach(({ packet, arrival }, index) => {
      expect(packet).toBe(hexOf(packetOf(sizes[index] ?? 0)));
      expect(hexOf(arrival.sourceGid)).toBe(hexOf(THEIRS));
      expect(arrival.identification).toBe(index * 9001);
      expect(arrival).toMatchObject({ sourcePort: PORT, hopLimit: 64, trafficClass: 0 });
    });
    expect(port.counters).toMatchObject({ identified: sizes.length - 1, icrcErrors: 0 });
  });

  it('reads past the flood of one host, in the same turn', async () => {
    link.listen(port, OWN);
    peer.send(datagramOf(packetOf(12), 0), PORT, OWN_ADDRESS);
    await until('a datagram', () => arrivals.length === 1);
    // Nothing is read before the event loop continues: the flood and what follows arrive in one turn.
    sendAtOnce(THEIR_ADDRESS_2, datagramOf(packetOf(12), 0, PORT, FLOOD), 400);
    sendAtOnce(THEIR_ADDRESS_3, datagramOf(packetOf(28), 0, PORT, LATE), 1);
    await until('the second turn', () => turns.length === 2);
    expect(turns[1]).toBe(1 + 384 + 1);
    expect(arrivals.at(-1)?.packet).toBe(hexOf(packetOf(28)));
    expect(port.counters).toMatchObject({ overShare: 400 - 384, icrcErrors: 0, malformed: 0 });
  });

  it('loses no packets of a host that sends alone', async () => {
    link.listen(port, OWN);
    sendAtOnce(THEIR_ADDRESS_2, datagramOf(packetOf(12), 0, PORT, FLOOD), 300);
    await until('300 datagrams', () => arrivals.length === 300);
    expect(turns).toEqual([128, 256, 300]);
    expect(port.counters.overShare).toBe(0);
  });

  it('drops and counts damaged and malformed packets', async () => {
    link.listen(port, OWN);
    const damaged = datagramOf(packetOf(200), 0);
    damaged[150] = (damaged[150] ?? 0) ^ 1;
    const wrongPort = datagramOf(packetOf(64), 0, 4792);
    const oversized = datagramOf(packetOf(8000), 0);
    const unaligned = new Uint8Array(33);
    for (const bytes of [damaged, wrongPort, oversized, unaligned, new Uint8Array(0)]) {
      peer.send(bytes, PORT, OWN_ADDRESS);
    }
    const { counters } = port;
    await until('five errors', () => counters.malformed + counters.icrcErrors === 5);
    expect(linkCounters(counters)).toEqual({
      rx_icrc_encapsulated: 2,
      rx_malformed: 3,
      rx_bad_pkey: 0,
      rx_bad_qkey: 0,
      rx_unexpected: 0,
      rx_over_share: 0,
      rx_identified: 0,
    });
    expect(arrivals).toEqual([]);
  });

  it('says once what to do when the port is in use, and binds it later', async () => {
    const other = createSocket('udp4');
    other.bind(PORT, OWN_ADDRESS);
    await once(other, 'listening');
    expect(() => link.pathMtu(port, OWN, THEIRS)).toThrow(
      `UDP port 4791 of ${OWN_ADDRESS} is taken: by another daemon, or by the kernel's rxe. Stop`,
    );
    link.listen(port, OWN);
    expect(notes).toEqual([expect.stringContaining('warn: UDP port 4791')]);
    expect(link.path(port, OWN, VECTOR)).toBeUndefined();
    other.close();
    await once(other, 'close');
    expect(link.pathMtu(port, OWN, THEIRS)).toBe(5);
    expect(link.path(port, OWN, VECTOR)).toBeDefined();
  });

  it('opens a port that was in use once it is free, without another call', async () => {
    const other = createSocket('udp4');
    other.bind(PORT, OWN_ADDRESS);
    await once(other, 'listening');
    link.listen(port, OWN);
    link.handleDeadline(0);
    expect(link.deadline).toBe(1_000_000);
    link.handleDeadline(999_999);
    link.handleDeadline(1_000_000);
    expect(link.deadline).toBe(2_000_000);
    expect(notes).toEqual([expect.stringContaining('info: UDP port 4791')]);
    other.close();
    await once(other, 'close');
    link.handleDeadline(2_000_000);
    expect(link.deadline).toBeUndefined();
    expect(notes.slice(1)).toEqual([`info: UDP port 4791 of ${OWN_ADDRESS} is open now`]);
    peer.send(datagramOf(packetOf(20), 0), PORT, OWN_ADDRESS);
    await until('the datagram', () => arrivals.length === 1);
  });

  it('gives up a port in use when the address goes', async () => {
    const other = createSocket('udp4');
    other.bind(PORT, OWN_ADDRESS);
    await once(other, 'listening');
    const gids = [OWN];
    const moving = { ...port, has: (gid: Uint8Array) => gids.includes(gid) };
    link.listen(moving, OWN);
    expect(link.deadline).toBe(0);
    gids.length = 0;
    link.handleDeadline(0);
    expect(link.deadline).toBeUndefined();
    other.close();
    await once(other, 'close');
  });

  it('has no route from a link-local GID or a foreign address', () => {
    const local = new Uint8Array(16);
    local.set([0xfe, 0x80]);
    expect(link.pathMtu(port, local, local)).toBe(0);
    expect(link.pathMtu(port, local, THEIRS)).toBe(0);
    expect(link.pathMtu(port, local, THEIRS)).toBe(0);
    expect(notes).toEqual([
      'warn: roce0 cannot reach fe80:: from fe80:: (no other host knows link-local GIDs); use another ' +
        'GID index (-g, -x)',
      `warn: roce0 cannot reach ${THEIR_ADDRESS} from fe80:: (no other host knows link-local GIDs); ` +
        'use another GID index (-g, -x)',
    ]);
    notes.length = 0;
    expect(link.pathMtu(port, mappedGid(10, 9, 8, 7), THEIRS)).toBe(0);
    expect(notes).toEqual([
      `warn: roce0 cannot reach ${THEIR_ADDRESS} from 10.9.8.7 (no route); use the GID index of an ` +
        'address that reaches it (-g, -x), at both ends',
    ]);
  });

  it('closes the sockets of addresses that the port lost', async () => {
    const gids = [OWN];
    const changing = { ...portOf(OWN), has: (gid: Uint8Array) => gids.includes(gid) };
    const path = link.path({ ...changing, has: () => gids.length > 0 }, OWN, VECTOR);
    gids.length = 0;
    link.follow();
    const free = createSocket('udp4');
    free.bind(PORT, OWN_ADDRESS);
    await once(free, 'listening');
    free.close();
    if (path === undefined) throw new Error('no path');
    link.bytes.set(packetOf(12), link.nextStart);
    link.add(12, path);
    link.transmit(0);
    expect(path.port.counters.undeliverable).toBe(1);
    expect(notes).toEqual([`warn: packets to ${THEIR_ADDRESS} cannot leave (EBADF)`]);
  });
});
