/** Datagrams to multicast groups between two hosts, by UDP sockets of the kernel. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { QPState } from '#contract/verbs/enums';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { gidBytes } from '#daemon/host/host-addresses';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, datagramHeaderBytes, writeDatagramHeaders } from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, ROCE_PORT, writeIcrc } from '#daemon/roce/wire/icrc';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { datagramEnd } from '#test/support/datagram-end';
import { hexOf } from '#test/support/hex';
import { ownAddress } from '#test/support/own-address';
import { until } from '#test/support/patience';
import { PEER } from '#test/support/program-steps';

const [NEAR, FAR, STRANGER] = [ownAddress(30), ownAddress(31), ownAddress(32)];
/** A group that only this process uses, like its addresses. */
const groupAt = (last: number): string => ownAddress(last).replace(/^127/, '239');
const GROUP = groupAt(1);
const GROUP_QPN = 0xffffff;
const QKEY = 0x11111111;
const GRH_BYTES = 40;
const UD_SEND_ONLY = 0x64;
const [SEND, SIGNALED] = [2, 2];

type End = ReturnType<typeof datagramEnd>;

class World {
  readonly notes: string[] = [];
  readonly host: RnicHost;
  /** The owner whose limits the groups count against. */
  readonly owner = {};

  constructor(address: string) {
    const notice = ({ text }: { text: string }) => this.notes.push(text);
    this.host = new RnicHost({
      system: hostSystem(),
      observer: { notice },
      devices: [{ name: 'roce0', addresses: [address], transport: 'roce' }],
      roce: ROCE_NETWORK,
    });
  }

  get device(): EmulatedDevice {
    return this.host.devices[0] as EmulatedDevice;
  }

  get drops() {
    const { unexpected, icrcErrors, malformed } = this.device.rocePort?.counters ?? {};
    return { unexpected, icrcErrors, malformed };
  }

  end(state: QPState = QPState.RTS): End {
    return datagramEnd(this.device, () => this.host.drain(), state);
  }

  attach({ qp }: Pick<End, 'qp'>, group = GROUP): void {
    this.device.roce?.attachMulticast(qp, gidBytes(group), this.owner);
  }

  detach({ qp }: Pick<End, 'qp'>, group = GROUP): void {
    this.device.roce?.detachMulticast(qp, gidBytes(group));
  }

  /** A receive of 200 bytes, from the start of the end's memory on. */
  expectOne({ receives, piece }: End): void {
    receives.receive(7, [piece(200)]);
  }

  send(end: End, bytes: readonly number[], group = GROUP, hopLimit = 1): void {
    const handle = this.device.nic.createAH(end.pd, { ...PEER, dgid: gidBytes(group), hopLimit });
    end.memory.set(bytes);
    const fields = { 24: GROUP_QPN, 28: QKEY, 36: handle.number };
    end.sends.send(1, SEND, SIGNALED, [end.piece(bytes.length)], fields);
    this.host.doorbell(end.qp);
  }
}

let near: World;
let far: World;

beforeEach(() => {
  near = new World(NEAR);
  far = new World(FAR);
});

afterEach(async () => {
  await near.host.close();
  await far.host.close();
});

async function arrival({ completions }: End): Promise<unknown> {
  return await until('a completion', () => completions.poll());
}

/** A datagram of RoCE to an address or group as the stranger would send it. */
function datagramTo(
  group: string,
  destQpn: number,
  payload: readonly number[],
  from = { address: STRANGER, port: ROCE_PORT },
): Uint8Array {
  const packet = new Packet();
  Object.assign(packet, { opcode: UD_SEND_ONLY, pkey: 0xffff, destQpn, qkey: QKEY, sourceQpn: 9 });
  packet.payloadLength = payload.length;
  const datagram = new Datagram();
  datagram.sourceGid.set(gidBytes(from.address));
  datagram.destGid.set(gidBytes(group));
  Object.assign(datagram, { sourcePort: from.port, packetLength: packetBytes(packet) });
  const bytes = new Uint8Array(datagramHeaderBytes(datagram) + datagram.packetLength + ICRC_BYTES);
  const start = writeDatagramHeaders(bytes, 0, datagram);
  bytes.set(payload, writeHeaders(bytes, start, packet));
  const end = bytes.length - ICRC_BYTES;
  writeIcrc(bytes, end, icrcOf(crc32, bytes, 0, start, end));
  return bytes.subarray(start);
}

/** A socket of another program. */
async function socketAt(address: string, port: number): Promise<Socket> {
  const socket = createSocket('udp4');
  socket.bind(port, address);
  await once(socket, 'listening');
  return socket;
}

async function send(socket: Socket, to: string, bytes: Uint8Array): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    socket.send(bytes, ROCE_PORT, to, (error) => (error ? reject(error) : resolve()));
  });
}

/** Sends datagrams from the stranger's port 4791. */
async function sendAsStranger(to: string, ...datagrams: readonly Uint8Array[]): Promise<void> {
  const socket = await socketAt(STRANGER, ROCE_PORT);
  socket.setMulticastInterface(STRANGER);
  for (const bytes of datagrams) await send(socket, to, bytes);
  socket.close();
}

/** Sockets of this machine that are bound to port 4791 of a group. */
function listenersOf(group: string): number {
  const bytes = group.split('.').map((part) => Number(part).toString(16).padStart(2, '0'));
  const local = `${bytes.reverse().join('').toUpperCase()}:12B7`;
  return readFileSync('/proc/net/udp', 'utf8').split(local).length - 1;
}

describe('a multicast group of two hosts', () => {
  it('reaches every queue pair once, including those of the sender [ROCE-MC-01, ROCE-MC-05, IBV-AH-02]', async () => {
    const [sender, own] = [near.end(), near.end()];
    const [one, two, outside] = [far.end(), far.end(), far.end()];
    near.attach(own);
    for (const end of [one, two]) far.attach(end);
    for (const end of [one, two, outside]) far.expectOne(end);
    for (let receive = 0; receive < 2; receive += 1) near.expectOne(own);
    const bytes = Array.from({ length: 150 }, (_, index) => (index * 7) & 0xff);
    near.send(sender, bytes, GROUP, 3);
    for (const end of [own, one, two]) {
      expect(await arrival(end)).toMatchObject({ byteLen: 190, sourceQpn: sender.qp.qpn });
      expect(hexOf(end.memory.subarray(GRH_BYTES, 190))).toBe(hexOf(Uint8Array.from(bytes)));
      // The IPv4 header ends the area: time to live, protocol, both addresses.
      const { memory } = end;
      expect([memory[28], memory[29]]).toEqual([3, 17]);
      expect([...memory.subarray(32, 40)].join('.')).toBe(`${NEAR}.${GROUP}`);
    }
    // A second one arrives after anything that the first would still cause at its sender's host.
    far.expectOne(one);
    near.send(sender, [5]);
    expect(await arrival(one)).toMatchObject({ byteLen: 41 });
    expect(await arrival(own)).toMatchObject({ byteLen: 41 });
    expect(own.completions.poll()).toBeUndefined();
    expect(outside.completions.poll()).toBeUndefined();
    expect([near.drops, far.drops]).toEqual(
      Array(2).fill({ unexpected: 0, icrcErrors: 0, malformed: 0 }),
    );
    expect([near.notes, far.notes]).toEqual([[], []]);
  });

  it('is received until its last queue pair leaves', async () => {
    const [one, two] = [far.end(), far.end()];
    const group = groupAt(2);
    expect(listenersOf(group)).toBe(0);
    far.attach(one, group);
    far.attach(two, group);
    far.attach(two, group);
    expect(listenersOf(group)).toBe(1);
    far.detach(one, group);
    expect(listenersOf(group)).toBe(1);
    far.detach(two, group);
    expect(listenersOf(group)).toBe(0);
    far.attach(one, group);
    expect(listenersOf(group)).toBe(1);
    far.host.multicastGroups.forget(one.qp);
    expect(listenersOf(group)).toBe(0);
    far.attach(one, group);
    await far.host.close();
    expect(listenersOf(group)).toBe(0);
  });

  it('drops and counts foreign packets [ROCE-MC-04]', async () => {
    const end = far.end();
    far.attach(end);
    far.expectOne(end);
    // A queue pair that is not in RTR yet, in a separate group.
    far.attach(far.end(QPState.RESET), groupAt(3));
    const damaged = datagramTo(GROUP, GROUP_QPN, Array(60).fill(1));
    damaged[30] = (damaged[30] ?? 0) ^ 1;
    await sendAsStranger(GROUP, damaged, datagramTo(GROUP, end.qp.qpn, [1]), Uint8Array.of(1, 2));
    await sendAsStranger(groupAt(3), datagramTo(groupAt(3), GROUP_QPN, [2]));
    // This group has no member; and no address has a queue pair of this number.
    await sendAsStranger(groupAt(4), datagramTo(groupAt(4), GROUP_QPN, [3]));
    await sendAsStranger(FAR, datagramTo(FAR, GROUP_QPN, [4]));
    await sendAsStranger(GROUP, datagramTo(GROUP, GROUP_QPN, [0x5a]));
    expect(await arrival(end)).toMatchObject({ byteLen: 41, sourceQpn: 9 });
    expect(end.memory[GRH_BYTES]).toBe(0x5a);
    await expect.poll(() => far.drops).toEqual({ unexpected: 3, icrcErrors: 1, malformed: 1 });
    expect(end.completions.poll()).toBeUndefined();
  });

  it('is not visited when a queue pair of other groups ends', () => {
    const [member, other] = [far.end().qp, far.end().qp];
    for (let number = 1; number <= 100; number += 1) far.attach({ qp: member }, `ff15::${number}`);
    far.attach({ qp: other }, 'ff15::1');
    far.attach({ qp: other }, 'ff15::200');
    const { multicastGroups } = far.host;
    expect([member, other].map((qp) => multicastGroups.groupsOf(qp))).toEqual([100, 2]);
    const looks = vi.spyOn(Set.prototype, 'delete');
    multicastGroups.forget(other);
    // Two groups: each forgets the queue pair, and the queue pair forgets each. The second is left.
    expect(looks).toHaveBeenCalledTimes(5);
    looks.mockRestore();
    expect([member, other].map((qp) => multicastGroups.groupsOf(qp))).toEqual([100, 0]);
    multicastGroups.forget(member);
    expect(multicastGroups.groupsOf(member)).toBe(0);
  });

  it('counts against the limit of a client', () => {
    const [first, second] = [far.end().qp, far.end().qp];
    // Groups of a family that the device does not have, so no socket receives them.
    const group = (number: number): string => `ff15::${number.toString(16)}`;
    for (let number = 1; number <= 256; number += 1) far.attach({ qp: first }, group(number));
    expect(() => far.attach({ qp: second }, group(257))).toThrow(
      'a client receives at most 256 multicast groups from other hosts',
    );
    far.attach({ qp: second }, group(1));
    far.detach({ qp: first }, group(1));
    expect(() => far.attach({ qp: second }, group(257))).toThrow('at most 256');
    far.detach({ qp: second }, group(1));
    far.attach({ qp: second }, group(257));
  });

  it('stays within the host if the port is in use, and reports it once', async () => {
    const taken = createSocket('udp4');
    taken.bind(ROCE_PORT, groupAt(5));
    await once(taken, 'listening');
    const [sender, end] = [far.end(), far.end()];
    far.attach(end, groupAt(5));
    far.expectOne(end);
    far.send(sender, [6], groupAt(5));
    expect(await arrival(end)).toMatchObject({ byteLen: 41 });
    expect(far.notes).toEqual([
      `roce0 cannot receive group ${groupAt(5)} from other hosts: UDP port 4791 is taken, by the ` +
        "kernel's rxe, for example; stop that one. Queue pairs of this host still receive from each other",
    ]);
    taken.close();
  });
});

describe('a datagram to an address', () => {
  it('is not accepted by UDP from a device of the same host', async () => {
    const end = far.end();
    far.expectOne(end);
    // Any user of this machine may send from there.
    const socket = await socketAt(FAR, 0);
    await send(socket, FAR, datagramTo(FAR, end.qp.qpn, [1], socket.address()));
    socket.close();
    await expect.poll(() => far.drops).toEqual({ unexpected: 1, icrcErrors: 0, malformed: 0 });
    await sendAsStranger(FAR, datagramTo(FAR, end.qp.qpn, [2]));
    expect(await arrival(end)).toMatchObject({ byteLen: 41 });
    expect(end.memory[GRH_BYTES]).toBe(2);
  });
});
