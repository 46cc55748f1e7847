/** Datagrams between the RoCE ports of a host: routes, groups, GRHs. */
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { QPState, QPType } from '#contract/verbs/enums';
import { PacketNetwork, type PacketNetworkHost } from '#daemon/host/roce/packet-network';
import type { PacketPort } from '#daemon/host/roce/packet-port';
import { RoceCounters } from '#daemon/host/roce/roce-counters';
import { LentPayload } from '#daemon/rnic/memory/lent-payload';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { PacketWire } from '#daemon/roce/transport/packet-wire';
import { Packet, writeHeaders } from '#daemon/roce/wire/packet';
import { datagramEnd } from '#test/support/datagram-end';
import { bytesOf, hexOf } from '#test/support/hex';
import { expectOutcome } from '#test/support/outcomes';
import { ProgramRig } from '#test/support/program-rig';
import { bringTo, mappedGid, PEER } from '#test/support/program-steps';
import { RoceWorld } from '#test/support/roce-host';

const GROUP = mappedGid(239, 1, 1, 1);
const GROUP_QPN = 0xffffff;

/** A wire that sends given packets, and keeps received ones. */
class ScriptedDatagrams implements PacketWire {
  readonly destQueue: { readonly vector: AddressVector; readonly qpn: number }[] = [];
  readonly received: { readonly packet: Packet; readonly grh: string }[] = [];
  /** The destination, as an address handle holds it. */
  destination: { readonly vector: AddressVector; readonly dgid: Uint8Array } | undefined =
    undefined;
  readonly sendable = true;
  readonly midSend = false;
  readonly timeouts = 0;
  readonly polledSpan = 1;
  readonly sqPsn = 0;
  readonly rqPsn = 0;

  handlePacket(packet: Readonly<Packet>, _bytes: Uint8Array, _now: number, grh: Uint8Array): void {
    this.received.push({ packet: { ...packet }, grh: hexOf(grh) });
  }

  pollPacket(target: Uint8Array, start: number): number {
    const next = this.destQueue.shift();
    if (next === undefined) return 0;
    this.destination = { vector: next.vector, dgid: next.vector.dgid };
    const packet = new Packet();
    Object.assign(packet, { opcode: 0x64, destQpn: next.qpn, qkey: 1, sourceQpn: 7 });
    return writeHeaders(target, start, packet) - start;
  }

  endPolling(): boolean {
    return true;
  }

  pollFailure(): undefined {}
  handleInputEnd(): void {}
  modified(): void {}
  pump(): void {}
  disconnect(): void {}
  abort(): void {}
  fail(): void {}
  handleDeadline(): void {}
  nextDeadline(): number {
    return NEVER;
  }
}

/** A host that never calls back. */
const HOST: PacketNetworkHost = {
  lentPayload: new LentPayload(),
  soon: () => undefined,
  drain: () => undefined,
  now: () => 0,
  notePackets: () => undefined,
  watchErrored: () => undefined,
  fireFault: () => undefined,
};

/** A port whose one GID is an address, and that reaches all of `ports`. */
function portOf(address: Uint8Array, ports: PacketPort[]): PacketPort {
  const port: PacketPort = {
    name: 'roce',
    gid: (index) => (index === 1 ? address : undefined),
    ownGids: () => [undefined, address],
    has: (gid) => hexOf(gid) === hexOf(address),
    peer: (dgid) => ports.find((other) => hexOf(other.gid(1) ?? dgid.slice(1)) === hexOf(dgid)),
    down: false,
    counters: new RoceCounters(),
  };
  ports.push(port);
  return port;
}

class World {
  readonly network = new PacketNetwork(HOST);
  readonly ports: PacketPort[] = [];
  readonly here = portOf(mappedGid(10, 0, 0, 1), this.ports);
  readonly there = portOf(mappedGid(10, 0, 0, 2), this.ports);
  readonly #rig = new ProgramRig();

  /** A queue pair on the network, and the scripted wire of its connection. */
  end(port: PacketPort, type: QPType = QPType.ud): { qp: QP; wire: ScriptedDatagrams } {
    const qp = bringTo(this.#rig.createQP(type), QPState.INIT);
    const wire = new ScriptedDatagrams();
    const connection = this.network.connect(qp, port, wire);
    // The wire under test replaces the rig's own.
    Object.defineProperty(qp, 'wire', { value: connection });
    return { qp, wire };
  }

  send(from: { qp: QP; wire: ScriptedDatagrams }, vector: AddressVector, qpn: number): void {
    from.wire.destQueue.push({ vector, qpn });
    from.qp.wire?.pump(0);
    this.network.carry(0);
    this.network.assertDeepInvariants();
  }
}

describe('datagrams', () => {
  it('reach the queue pair of the number and port that their address names, with a GRH', () => {
    const world = new World();
    const sender = world.end(world.here);
    const [same, other] = [world.end(world.there), world.end(world.here)];
    const vector = { ...PEER, dgid: mappedGid(10, 0, 0, 2), trafficClass: 0x28, hopLimit: 9 };
    world.send(sender, vector, same.qp.qpn);
    world.send(sender, vector, same.qp.qpn);
    expect(same.wire.received).toHaveLength(2);
    expect(other.wire.received).toEqual([]);
    // 20 bytes of packet, 8 of UDP, 4 of ICRC and the IPv4 header itself.
    const header = '45 28 0034 0000 4000 09 11';
    const [first] = same.wire.received;
    expect(first?.grh.slice(0, 60)).toBe(hexOf(bytesOf(`00*20 ${header}`)));
    expect(first?.grh.slice(64)).toBe(hexOf(bytesOf('0a000001 0a000002')));
    expect(first?.packet).toMatchObject({ sourceQpn: 7, qkey: 1 });
    expect(world.here.counters).toMatchObject({ sentPackets: 2, undeliverable: 0 });
    expect(world.there.counters).toMatchObject({ receivedPackets: 2 });
  });

  it('to a large group take several turns, a few thousand copies in each', () => {
    const world = new World();
    const sender = world.end(world.here);
    const members = Array.from({ length: 1500 }, () => world.end(world.there));
    for (const { qp } of members) world.network.groups.attach(qp, GROUP, qp);
    const vector = { ...PEER, dgid: GROUP };
    for (let count = 0; count < 60; count += 1) {
      sender.wire.destQueue.push({ vector, qpn: GROUP_QPN });
    }
    world.send(sender, vector, GROUP_QPN);
    const copies = () => members.reduce((sum, { wire }) => sum + wire.received.length, 0);
    expect(copies()).toBeGreaterThan(0);
    expect(copies()).toBeLessThan(4 * members.length);
  });

  it('are lost without a receiver: number, address, kind of queue pair, empty group', () => {
    const world = new World();
    const sender = world.end(world.here);
    const connected = world.end(world.there, QPType.rc);
    const there = { ...PEER, dgid: mappedGid(10, 0, 0, 2) };
    world.send(sender, there, 0x123);
    world.send(sender, { ...PEER, dgid: mappedGid(10, 9, 9, 9) }, 1);
    world.send(sender, { ...there, sgidIndex: 5 }, connected.qp.qpn);
    world.send(sender, there, connected.qp.qpn);
    world.send(sender, { ...PEER, dgid: GROUP }, GROUP_QPN);
    expect(world.here.counters).toMatchObject({ sentPackets: 5, undeliverable: 5 });
    expect(connected.wire.received).toEqual([]);
  });

  it('to a group reach every queue pair attached to it, of any port, the sender too', () => {
    const world = new World();
    const sender = world.end(world.here);
    const [one, two, none] = [
      world.end(world.here),
      world.end(world.there),
      world.end(world.there),
    ];
    const { groups } = world.network;
    for (const { qp } of [sender, one, two, two]) groups.attach(qp, GROUP, sender);
    const vector = { ...PEER, dgid: GROUP };
    world.send(sender, vector, GROUP_QPN);
    expect([sender, one, two, none].map(({ wire }) => wire.received.length)).toEqual([1, 1, 1, 0]);

    expect(groups.detach(two.qp, GROUP)).toBe(true);
    expect(groups.detach(two.qp, GROUP)).toBe(false);
    expect([one, two].map(({ qp }) => groups.groupsOf(qp))).toEqual([1, 0]);
    groups.forget(one.qp);
    world.send(sender, vector, GROUP_QPN);
    expect([sender, one, two].map(({ wire }) => wire.received.length)).toEqual([2, 1, 1]);
    expect(world.here.counters.undeliverable).toBe(0);
  });
});

describe('multicast groups', () => {
  it('take 56 queue pairs of each client, which has 8192 places in them', () => {
    const { groups } = new PacketNetwork(HOST);
    const rig = new ProgramRig();
    const qps = Array.from({ length: 57 }, () => rig.createQP(QPType.ud));
    const [first, last] = [qps[0], qps[56]] as [QP, QP];
    const [client, other] = [{}, {}];
    for (const qp of qps.slice(0, 56)) groups.attach(qp, GROUP, client);
    groups.attach(first, GROUP, client);
    expect(() => groups.attach(last, GROUP, client)).toThrow('at most 56 queue pairs');
    for (let group = 56; group < 8192; group += 1) {
      groups.attach(last, mappedGid(239, 2, group >> 8, group & 0xff), client);
    }
    const more = mappedGid(239, 3, 0, 0);
    expect(() => groups.attach(last, more, client)).toThrow('at most 8192');
    // Other clients have their own places, in the same group, too.
    const theirs = rig.createQP(QPType.ud);
    groups.attach(theirs, GROUP, other);
    groups.attach(theirs, more, other);
    groups.forget(last);
    groups.attach(last, more, client);
    expect(groups.groupsOf(last)).toBe(1);
    expect(groups.members(more).size).toBe(2);
    expect(groups.detach(first, GROUP)).toBe(true);
    groups.attach(last, GROUP, client);
  });
});

function endOf(world: RoceWorld, device: number): ReturnType<typeof datagramEnd> {
  return datagramEnd(world.device(device), () => world.host.drain());
}

describe('datagrams of real queue pairs', () => {
  const QKEY = 0x11111111;
  const SEND = 2;
  const SIGNALED = 2;

  it('arrive with the GRH of their path, or not at all', () => {
    const world = new RoceWorld();
    const [a, b] = [endOf(world, 0), endOf(world, 1)];
    const handle = a.nic.createAH(a.pd, { ...PEER, dgid: mappedGid(127, 0, 0, 3), hopLimit: 7 });
    a.memory.fill(0x5a, 0, 11);
    b.receives.receive(9, [b.piece(100)]);
    for (const [wrId, qkey] of [
      [1, QKEY],
      [2, QKEY + 1],
      [3, QKEY],
    ] as const) {
      const fields = { 24: b.qp.qpn, 28: qkey, 36: handle.number };
      a.sends.send(wrId, SEND, SIGNALED, [a.piece(11)], fields);
    }
    world.host.doorbell(a.qp);
    world.run();
    // The second has a wrong key, the third finds no receive: both are lost, none is reported.
    expectOutcome(a.completions, [1, 0], [2, 0], [3, 0]);
    expect(b.nic.counters.inSends).toBe(1);
    expect(world.device(1).linkCounters).toMatchObject({ rx_bad_qkey: 1 });
    expect(b.completions.poll()).toMatchObject({ wrId: 9, byteLen: 51, sourceQpn: a.qp.qpn });
    expect(b.completions.poll()).toBeUndefined();
    const header = '45 00 0040 0000 4000 07 11';
    const received = hexOf(b.memory.subarray(0, 52));
    expect(received.slice(0, 60)).toBe(hexOf(bytesOf(`00*20 ${header}`)));
    expect(received.slice(64)).toBe(hexOf(bytesOf('7f000002 7f000003 5a*11 00')));
  });

  it('reach a group on both devices', () => {
    const world = new RoceWorld();
    const [a, b, c] = [endOf(world, 0), endOf(world, 1), endOf(world, 0)];
    const handle = a.nic.createAH(a.pd, { ...PEER, dgid: GROUP });
    for (const { qp, receives, piece } of [b, c]) {
      world.host.multicastGroups.attach(qp, GROUP, world);
      receives.receive(4, [piece(60)]);
    }
    a.sends.send(1, SEND, SIGNALED, [a.piece(20)], { 24: GROUP_QPN, 28: QKEY, 36: handle.number });
    world.host.doorbell(a.qp);
    world.run();
    for (const { completions } of [b, c]) {
      expect(completions.poll()).toMatchObject({ wrId: 4, byteLen: 60, sourceQpn: a.qp.qpn });
    }
  });

  it('to a group count once at each port that receives it if their ICRC is wrong [ROCE-ICRC-03]', () => {
    const world = new RoceWorld(3);
    const [a, b, c] = [endOf(world, 0), endOf(world, 1), endOf(world, 1)];
    for (const { qp } of [b, c]) world.host.multicastGroups.attach(qp, GROUP, world);
    world.host.faults.add({ kind: 'corrupt-icrc' }, undefined);
    const errors = (): unknown => {
      return [0, 1, 2].map((index) => world.device(index).rocePort?.counters.icrcErrors);
    };
    const send = (dgid: Uint8Array): void => {
      const handle = a.nic.createAH(a.pd, { ...PEER, dgid });
      const fields = { 24: GROUP_QPN, 28: QKEY, 36: handle.number };
      a.sends.send(1, SEND, SIGNALED, [a.piece(20)], fields);
      world.host.doorbell(a.qp);
      world.run();
    };
    send(GROUP);
    expect(errors()).toEqual([0, 1, 0]);
    // A group without members.
    send(mappedGid(239, 1, 1, 2));
    expect(errors()).toEqual([0, 1, 0]);
    expect(world.device(0).rocePort?.counters).toMatchObject({ sentPackets: 2, undeliverable: 1 });
  });
});
