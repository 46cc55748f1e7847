/** Datagrams between the RoCE ports of a host: routes, groups, GRHs. */
import { describe, expect, it } from 'vitest';
import { PacketNetwork } from '../../../daemon/host/packet-network.ts';
import type { PacketPort } from '../../../daemon/host/packet-port.ts';
import { makeRoceCounters } from '../../../daemon/host/roce-counters.ts';
import type { AddressVector } from '../../../daemon/rnic/qp-attributes.ts';
import type { QP } from '../../../daemon/rnic/queue-pair.ts';
import { NEVER } from '../../../daemon/rnic/wire-port.ts';
import type { PacketWire } from '../../../daemon/roce/transport/packet-wire.ts';
import { makePacket, type Packet, writeHeaders } from '../../../daemon/roce/wire/packet.ts';
import { QPState, QPType } from '../../../verbs-api/contract/verbs/enums.ts';
import { bytesOf, hexOf } from '../../support/hex.ts';
import { bringTo, mappedGid, PEER, ProgramRig } from '../../support/program-rig.ts';

const GROUP = mappedGid(239, 1, 1, 1);
const GROUP_QPN = 0xffffff;

/** A wire that sends what it is given, and keeps what comes. */
class ScriptedDatagrams implements PacketWire {
  readonly destQueue: { readonly vector: AddressVector; readonly qpn: number }[] = [];
  readonly received: { readonly packet: Packet; readonly grh: string }[] = [];
  /** As an address handle. */
  destination: { readonly vector: AddressVector; readonly dgid: Uint8Array } | undefined =
    undefined;
  readonly sendable = true;
  readonly midSend = false;
  readonly timeouts = 0;
  readonly sqPsn = 0;
  readonly rqPsn = 0;

  handlePacket(packet: Readonly<Packet>, _bytes: Uint8Array, _now: number, grh: Uint8Array): void {
    this.received.push({ packet: { ...packet }, grh: hexOf(grh) });
  }

  pollPacket(target: Uint8Array, start: number): number {
    const next = this.destQueue.shift();
    if (next === undefined) return 0;
    this.destination = { vector: next.vector, dgid: next.vector.dgid };
    const packet = makePacket();
    Object.assign(packet, { opcode: 0x64, destQpn: next.qpn, qkey: 1, sourceQpn: 7 });
    return writeHeaders(target, start, packet) - start;
  }

  pollFailure(): undefined {}
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

/** A port whose one GID is an address, and that reaches all of `ports`. */
function portOf(address: Uint8Array, ports: PacketPort[]): PacketPort {
  const port: PacketPort = {
    gid: (index) => (index === 1 ? address : undefined),
    peer: (dgid) => ports.find((other) => hexOf(other.gid(1) ?? dgid.slice(1)) === hexOf(dgid)),
    down: false,
    counters: makeRoceCounters(),
  };
  ports.push(port);
  return port;
}

class World {
  readonly network = new PacketNetwork({ soon: () => undefined, drain: () => undefined });
  readonly ports: PacketPort[] = [];
  readonly here = portOf(mappedGid(10, 0, 0, 1), this.ports);
  readonly there = portOf(mappedGid(10, 0, 0, 2), this.ports);
  readonly #rig = new ProgramRig();

  /** A queue pair that is on the network, its wire, and its end of that. */
  end(port: PacketPort, type: QPType = QPType.ud): { qp: QP; wire: ScriptedDatagrams } {
    const qp = bringTo(this.#rig.createQP(type), QPState.INIT);
    const wire = new ScriptedDatagrams();
    const connection = this.network.connect(qp, port, wire);
    // The rig's own wire gives way to the one under test.
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

  it('are lost without a receiver: unknown number, unknown address, another kind of queue pair', () => {
    const world = new World();
    const sender = world.end(world.here);
    const connected = world.end(world.there, QPType.rc);
    const there = { ...PEER, dgid: mappedGid(10, 0, 0, 2) };
    world.send(sender, there, 0x123);
    world.send(sender, { ...PEER, dgid: mappedGid(10, 9, 9, 9) }, 1);
    world.send(sender, { ...there, sgidIndex: 5 }, connected.qp.qpn);
    world.send(sender, there, connected.qp.qpn);
    expect(world.here.counters).toMatchObject({ sentPackets: 4, undeliverable: 4 });
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
    for (const { qp } of [sender, one, two, two]) groups.attach(qp, GROUP);
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
