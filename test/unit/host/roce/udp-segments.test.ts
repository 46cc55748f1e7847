/** Packets of one length that leave as one message: links on real sockets, and sockets of the test. */
import { spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { gidBytes } from '#daemon/host/host-addresses';
import type { UdpNetwork, UdpSocket } from '#daemon/host/roce/udp-network';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, datagramHeaderBytes, writeDatagramHeaders } from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, readIcrc } from '#daemon/roce/wire/icrc';
import { OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { openUdp } from '#native-bridge/libc/udp-socket';
import { fillSlot } from '#test/support/datagram-slots';
import { hexOf } from '#test/support/hex';
import { networkNamespace } from '#test/support/network-namespace';
import { ownAddress } from '#test/support/own-address';
import { TEST_MS, until } from '#test/support/patience';
import { LinkEnd, packetOf, sealedDatagram } from '#test/support/udp-links';

const PORT = 4791;
const [NEAR, FAR] = [ownAddress(20), ownAddress(21)];
const [EIO, EINVAL] = [-5, -22];
/** The packets of a Write of 45,000 bytes: the first has a longer header, the last a shorter payload. */
const WRITE = [4124, ...Array.from({ length: 9 }, () => 4108), 4052];
const packets = WRITE.map((length, index) => packetOf(length, index + 1));

/** Positions in their messages: the first packet is one, the others are another. */
const POSITIONS = [0, ...WRITE.slice(1).keys()];

/** Runs a command in a new network namespace; undefined if not permitted. */
const apart = networkNamespace('ip', 'link');

const LINKS = new URL('../../../../dist/test/support/udp-links.js', import.meta.url);

/** Loopback has one address of IPv6, and other tests use its port 4791. */
const OVER_IPV6 = `
  ip link set lo up
  exec "$0" --input-type=module -e "
    import { LinkEnd, packetOf } from '${LINKS.href}';
    const packets = [${WRITE}].map((length, index) => packetOf(length, index + 1));
    const near = new LinkEnd('::1');
    const path = near.to('::1');
    for (const sent of [packets, packets.slice(1, 6)]) {
      for (const packet of sent) near.add(packet, path);
      near.link.transmit(0);
    }
    while (near.arrivals.length < ${WRITE.length + 5}) await new Promise(setImmediate);
    const { icrcErrors, identified, malformed } = near.port.counters;
    const arrivals = near.arrivals.map(({ packet }) => packet);
    console.log(JSON.stringify({ arrivals, refused: [icrcErrors, identified, malformed] }));
    near.link.close();
  "
`;

afterEach(() => {
  vi.restoreAllMocks();
});

function identifications({ arrivals }: LinkEnd): number[] {
  return arrivals.map(({ arrival }) => arrival.identification);
}

/** Sends these packets in one turn. */
function sendAll(end: LinkEnd, sent: readonly Uint8Array[], to: string): void {
  const path = end.to(to);
  for (const packet of sent) end.add(packet, path);
  end.link.transmit(0);
}

describe('packets of one length to one destination', () => {
  it('leave as one message, and the receiving link takes it apart', async () => {
    using near = new LinkEnd(NEAR);
    using far = new LinkEnd(FAR);
    sendAll(near, packets, FAR);
    await until('all packets', () => far.arrivals.length === packets.length);
    expect(far.arrivals.map(({ packet }) => packet)).toEqual(packets.map(hexOf));
    expect(identifications(far)).toEqual(POSITIONS);
    for (const { arrival } of far.arrivals) {
      expect(arrival).toMatchObject({ sourcePort: PORT, hopLimit: 9, trafficClass: 8 });
      expect(hexOf(arrival.sourceGid)).toBe(hexOf(near.gid));
    }
    expect(far.port.counters).toMatchObject({ identified: 0, icrcErrors: 0, malformed: 0 });
  });

  it('reach another receiver one by one; their ICRC covers the identification that Linux writes', async () => {
    using near = new LinkEnd(NEAR);
    const peer = createSocket('udp4');
    const received: Buffer[] = [];
    peer.on('message', (bytes) => received.push(bytes));
    peer.bind(PORT, FAR);
    await once(peer, 'listening');
    sendAll(near, packets, FAR);
    await until('all datagrams', () => received.length === packets.length);
    for (const [index, bytes] of received.entries()) {
      const datagram = new Datagram();
      datagram.sourceGid.set(near.gid);
      datagram.destGid.set(gidBytes(FAR));
      const packetLength = bytes.length - ICRC_BYTES;
      const identification = POSITIONS[index] ?? 0;
      Object.assign(datagram, { sourcePort: PORT, packetLength, identification });
      const whole = new Uint8Array(datagramHeaderBytes(datagram) + bytes.length);
      const start = writeDatagramHeaders(whole, 0, datagram);
      whole.set(bytes, start);
      const end = start + packetLength;
      expect(hexOf(whole.subarray(start, end))).toBe(hexOf(packets[index] ?? new Uint8Array(0)));
      expect(readIcrc(whole, end)).toBe(icrcOf(crc32, whole, 0, start, end));
    }
    peer.close();
  });

  it('leave one by one if they are few or go to several places', async () => {
    using near = new LinkEnd(NEAR);
    using far = new LinkEnd(FAR);
    const paths = [near.to(FAR), near.to(FAR)];
    for (const path of paths) for (const packet of packets.slice(1, 5)) near.add(packet, path);
    near.link.transmit(0);
    await until('all packets', () => far.arrivals.length === 8);
    expect(identifications(far)).toEqual(Array.from({ length: 8 }, () => 0));
    expect(far.port.counters).toMatchObject({ icrcErrors: 0 });
  });

  it.skipIf(apart === undefined)(
    'arrive over IPv6, as one message or one by one (needs a network namespace)',
    () => {
      const [command = '', ...rest] = [...(apart ?? []), 'sh', '-c', OVER_IPV6, process.execPath];
      const { stdout, stderr } = spawnSync(command, rest, {
        encoding: 'utf8',
        timeout: TEST_MS,
      });
      expect(JSON.parse(stdout || 'null'), stderr).toEqual({
        arrivals: [...packets, ...packets.slice(1, 6)].map(hexOf),
        refused: [0, 0, 0],
      });
    },
  );

  it('leave one by one from then on if the network refuses them as one message', async () => {
    using near = new LinkEnd(NEAR);
    using far = new LinkEnd(FAR);
    const { send } = OutgoingBatch.prototype;
    // Linux sends what comes before the message that it refuses. Here that packet is lost.
    const answers = [1, EIO];
    vi.spyOn(OutgoingBatch.prototype, 'send').mockImplementation(function (
      this: OutgoingBatch,
      fd,
      first,
    ) {
      return answers.shift() ?? send.call(this, fd, first);
    });
    const path = near.to(FAR);
    for (const packet of packets) near.add(packet, path);
    near.link.transmit(0);
    expect([path.single, answers]).toEqual([true, []]);
    for (const packet of packets) near.add(packet, path);
    near.link.transmit(0);
    await until('all packets', () => far.arrivals.length === 2 * packets.length - 1);
    expect(new Set(identifications(far))).toEqual(new Set([0]));
    expect(far.port.counters).toMatchObject({ icrcErrors: 0 });
    expect(near.port.counters.undeliverable).toBe(0);
  });

  it('count one by one if they cannot leave at all', () => {
    using near = new LinkEnd(NEAR);
    const path = near.to(FAR);
    for (const packet of packets) near.add(packet, path);
    vi.spyOn(OutgoingBatch.prototype, 'send').mockReturnValue(EINVAL);
    near.link.transmit(0);
    expect(near.port.counters.undeliverable).toBe(packets.length);
    expect(path.single).toBeUndefined();
  });
});

describe("a stranger's message of several datagrams", () => {
  it.each([
    ['no packets', 33, 33],
    ['only the start of one at the end', 32, 7],
  ])('is dropped and counted datagram by datagram if it has %s', async (_, length, last) => {
    using far = new LinkEnd(FAR);
    const { fd } = openUdp(NEAR, PORT, 65_536);
    const batch = new OutgoingBatch(8, 64);
    const name = socketAddress(FAR, PORT);
    const destination = { name, trafficClass: 0, hopLimit: 0 };
    for (let slot = 0; slot < 8; slot += 1) batch.add(slot < 7 ? length : last, destination);
    batch.join();
    expect(batch.segmentOf(7)).toBe(7);
    expect(batch.send(fd, 0)).toBe(8);
    closeDescriptor(fd);
    const { counters } = far.port;
    await until('eight errors', () => counters.malformed + counters.icrcErrors === 8);
    expect(counters.malformed).toBe(last === 7 ? 1 : 8);
    expect(far.arrivals).toEqual([]);
  });
});

/** A datagram from NEAR to FAR with this identification. */
function datagramOf(packet: Uint8Array, identification: number): Uint8Array {
  const ends = { sourceGid: gidBytes(NEAR), destGid: gidBytes(FAR), sourcePort: PORT };
  return sealedDatagram(packet, { ...ends, identification });
}

describe('a message that Linux has joined', () => {
  /** A link whose socket has these messages, then none. Returns it with a function that it calls when readable. */
  function linkOf(messages: (readonly [Uint8Array, ...Uint8Array[]])[]): [LinkEnd, () => void] {
    let read = (): void => undefined;
    const socket: UdpSocket = {
      segments: true,
      send: () => EIO,
      receive: (batch) => {
        const now = messages.splice(0, batch.slots);
        for (const [slot, [first, ...others]] of now.entries()) {
          const one = (bytes: Uint8Array) => {
            return { from: NEAR, fromPort: PORT, to: FAR, bytes, trafficClass: 0, hopLimit: 64 };
          };
          fillSlot(batch, slot, [one(first), ...others.map(one)]);
        }
        return now.length === 0 ? -11 : now.length;
      },
      close: () => undefined,
    };
    const network: UdpNetwork = {
      messageBytes: 65_536,
      open: (_, onReadable) => {
        read = onReadable;
        return socket;
      },
      openGroup: () => socket,
      routeMtu: () => 1500,
    };
    const end = new LinkEnd(FAR, network);
    return [end, () => read()];
  }

  const packet = packetOf(16);
  const numbered = (ids: readonly number[]) => {
    const [first = 0, ...others] = ids;
    return [
      datagramOf(packet, first),
      ...others.map((id) => datagramOf(packet, id)),
    ] as const satisfies readonly [Uint8Array, ...Uint8Array[]];
  };

  it('may begin with any identification, and continue by 1, by 0 or otherwise', () => {
    const runs = [
      [7, 8, 9, 10],
      [65_535, 0, 1],
      [0, 0, 0, 0, 0],
      [0, 0, 0],
      [5, 900, 3],
    ];
    const [far, read] = linkOf(runs.map(numbered));
    read();
    expect(identifications(far)).toEqual(runs.flat());
    // The first of three runs, the second of the third, and the last two.
    expect(far.port.counters).toMatchObject({ identified: 6, icrcErrors: 0 });
    far.link.close();
  });

  it('is one malformed packet if it has more datagrams than Linux joins', () => {
    const ids = Array.from({ length: 65 }, () => 0);
    const [far, read] = linkOf([numbered(ids), numbered(ids.slice(1))]);
    read();
    expect(far.arrivals).toHaveLength(64);
    expect(far.port.counters.malformed).toBe(1);
    far.link.close();
  });

  it('ends a turn, however many datagrams it has', () => {
    const message = numbered(Array.from({ length: 64 }, () => 0));
    const [far, read] = linkOf(Array.from({ length: 32 }, () => message));
    read();
    expect(far.arrivals).toHaveLength(8 * 64);
    read();
    expect(far.arrivals).toHaveLength(16 * 64);
    far.link.close();
  });
});
