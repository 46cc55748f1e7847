/**
 * Hostile senders, which forge packets. A blind one guesses addresses, queue pairs and messages of
 * the communication manager, and must break nothing. A seeing one also knows the packet numbers and
 * keys of one connection, and must break no other connection.
 */

import { addressBytes } from '#base/address';
import { QPState, QPType } from '#contract/verbs/enums';
import { gidBytes } from '#daemon/host/host-addresses';
import { PacketConnection } from '#daemon/host/roce/packet-connection';
import { type CmFields, type CmMessageName, writeCmMessage } from '#daemon/roce/wire/cm-message';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { writeIpRequest } from '#daemon/roce/wire/ip-request';
import { opcodeTraits, PacketOperation, Trait } from '#daemon/roce/wire/opcode';
import { Packet } from '#daemon/roce/wire/packet';
import { addPsn, psnDistance } from '#daemon/roce/wire/psn';
import { madPacket, roceDatagram } from '#test/support/roce-datagram';
import { must } from '../rules.ts';
import type { Life } from './packet-queue-pair.ts';
import type { PacketWorld } from './packet-world.ts';

/** A guess as close as this to a packet number would not be blind. */
const BLIND_DISTANCE = 1 << 16;
const GARBAGE_MAX_BYTES = 200;
const CUT_BYTES = 100;
const CUT_MICROS = 50_000;
const PAYLOAD_MAX_BYTES = 300;
/** rdma_cm's service id of port 0 in TCP's port space. */
const TCP_SERVICES = 0x0106_0000;
const RC_OPCODES: readonly number[] = Array.from({ length: 0x20 }, (_, opcode) => opcode).filter(
  (opcode) => opcodeTraits(opcode) !== 0,
);
const MESSAGES = ['REQ', 'REP', 'RTU', 'REJ', 'MRA', 'DREQ', 'DREP', 'SIDR_REQ'] as const;

export class HostileSenders {
  readonly #world: PacketWorld;

  constructor(world: PacketWorld) {
    this.#world = world;
  }

  blind(): void {
    const { prng, hosts, lives } = this.#world;
    const connected = [...lives].filter(({ healthy, qp, peer }) => {
      return healthy && qp.byId && peer?.qp.program.host !== qp.program.host;
    });
    if (connected.length > 0 && prng.oneIn(2)) {
      this.#claim(prng.choose(connected));
      return;
    }
    const to = prng.choose(prng.choose(hosts).addresses);
    const stranger = to.includes(':') ? 'fd00::9:9' : '10.9.9.9';
    const from = prng.oneIn(4) ? stranger : prng.choose(prng.choose(hosts).addresses);
    switch (prng.below(4)) {
      case 0:
        this.#garbage(from, to);
        return;
      case 1:
        this.#message(from, to, prng.choose(MESSAGES));
        return;
      default: {
        const known = [...lives].filter(({ current, peer }) => current && peer !== undefined);
        if (known.length > 0 && prng.oneIn(2)) this.#guess(prng.choose(known));
        else this.#packet(from, to, prng.below(2 ** 24), prng.below(2 ** 24));
      }
    }
  }

  /** Attacks a connection that it sees. */
  seeing(): void {
    const { prng, lives } = this.#world;
    const up = [...lives].filter(
      ({ up, current, peer }) => up && current && peer?.current === true,
    );
    if (up.length === 0) return;
    const life = prng.choose(up);
    const { peer, pair } = life;
    if (peer === undefined) return;
    const wire = wireOf(life);
    if (wire === undefined) return;
    // Packets between queue pairs of one host never come from the network.
    const { host } = life.qp.program;
    const within = peer.qp.program.host === host;
    // The address of a peer may have moved elsewhere.
    if (!within || host.moved) pair?.forge();
    if (!within && pair?.crossed === false && prng.oneIn(3)) {
      this.#cut(life, wire);
      return;
    }
    for (let count = prng.between(1, 4); count > 0; count -= 1) {
      const psn = prng.oneIn(2) ? wire.rqPsn : addPsn(wire.sqPsn, -prng.below(4));
      this.#packetTo(life, psn);
    }
  }

  /** A packet of a length that no path MTU allows: the queue pair must refuse it. */
  #cut(life: Life, wire: PacketConnection): void {
    const { qp, peer } = life;
    if (peer === undefined || life.qp.type !== QPType.rc) return;
    const { host, address } = qp.program;
    const psn = wire.rqPsn;
    const packet = Object.assign(new Packet(), {
      opcode: PacketOperation.sendFirst,
      destQpn: qp.qpn,
      psn,
      payloadLength: CUT_BYTES,
    });
    const taken = this.#send(peer.qp.program.address, address, packet);
    if (!taken || this.#world.plan.tiers.includes('agent')) return;
    this.#world.time.after(CUT_MICROS, () => {
      // Another packet may have come first, or this one was not read.
      const same = life.current && !life.over && wireOf(life) === wire && wire.rqPsn === psn;
      if (!same || host.accounts.faulted) return;
      must(qp.state === QPState.ERR, 'reported', 'a packet of a wrong length is not refused');
    });
  }

  /** Sends a packet with the number of a queue pair and a wrong packet number. */
  #guess(life: Life): void {
    const { prng } = this.#world;
    const wire = wireOf(life);
    // A message over UC may begin with any packet number.
    if (wire === undefined || life.qp.type !== QPType.rc) return;
    const psn = prng.below(2 ** 24);
    for (const near of [wire.rqPsn, wire.sqPsn]) {
      if (Math.abs(psnDistance(psn, near)) < BLIND_DISTANCE) return;
    }
    this.#packetTo(life, psn);
  }

  #packetTo(life: Life, psn: number): void {
    const { peer, qp } = life;
    if (peer === undefined) return;
    this.#packet(peer.qp.program.address, qp.program.address, qp.qpn, psn, life);
  }

  #packet(from: string, to: string, destQpn: number, psn: number, life?: Life): void {
    const { prng } = this.#world;
    const opcode = prng.choose(RC_OPCODES);
    const traits = opcodeTraits(opcode);
    const packet = new Packet();
    const target = life?.target.registered;
    const payloadLength = (traits & Trait.payload) === 0 ? 0 : prng.below(PAYLOAD_MAX_BYTES);
    Object.assign(packet, {
      opcode,
      destQpn,
      psn,
      ackRequest: prng.oneIn(2),
      vaLo: target?.area.address ?? 0,
      rkey: target?.rkey ?? prng.next(),
      dmaLength: payloadLength,
      swapAddLo: prng.next(),
      syndrome: prng.choose([0x1f, 0x20, 0x60, 0x61, 0x62, 0x63]),
      invalidateRkey: prng.next(),
      payloadLength,
    });
    this.#send(from, to, packet);
  }

  #garbage(from: string, to: string): void {
    const { prng, datagrams } = this.#world;
    const bytes = new Uint8Array(prng.below(GARBAGE_MAX_BYTES));
    prng.fill(bytes);
    datagrams.forge({
      from,
      fromPort: prng.below(65_536),
      to,
      bytes,
      trafficClass: 0,
      hopLimit: 64,
    });
  }

  /** A message of connection management with invented numbers. */
  #message(from: string, to: string, name: CmMessageName): void {
    const { prng, listeners } = this.#world;
    const [listener] = listeners;
    const port = listener !== undefined && prng.oneIn(2) ? listener.port : prng.below(65_536);
    this.#mad(from, to, name, {
      localCommId: prng.next(),
      remoteCommId: prng.next(),
      serviceIdLo: TCP_SERVICES + port,
      localQpn: prng.below(2 ** 24),
      remoteQpn: prng.below(2 ** 24),
      localGid: gidBytes(from),
      remoteGid: gidBytes(to),
      pathMtu: 3,
      maxCmRetries: prng.below(16),
      localResponseTimeout: prng.below(32),
      serviceTimeout: prng.below(32),
      privateData: addresses(from, to),
    } as Partial<CmFields<CmMessageName>>);
  }

  /** A request that names the queue pair of a peer, as if the peer connected it again. */
  #claim(life: Life): void {
    const { prng, listeners } = this.#world;
    const { peer, qp } = life;
    if (peer === undefined) return;
    const { host } = qp.program;
    const listener = [...listeners].find(({ program }) => program.host === host);
    const to = listener?.program.address ?? qp.program.address;
    const from = peer.qp.program.address;
    const port = listener === undefined || prng.oneIn(4) ? 9 : listener.port;
    this.#mad(from, to, 'REQ', {
      localCommId: prng.next(),
      serviceIdLo: TCP_SERVICES + port,
      localQpn: peer.qp.qpn,
      localGid: gidBytes(from),
      remoteGid: gidBytes(to),
      pathMtu: 3,
      maxCmRetries: 15,
      localResponseTimeout: 20,
      privateData: addresses(from, to),
    });
  }

  #mad<N extends CmMessageName>(
    from: string,
    to: string,
    name: N,
    fields: Partial<CmFields<N>>,
  ): void {
    const { prng } = this.#world;
    const mad = writeCmMessage(name, { hi: prng.next(), lo: prng.next() }, fields);
    this.#send(from, to, madPacket(), mad);
  }

  #send(from: string, to: string, packet: Readonly<Packet>, payload?: Uint8Array): boolean {
    const { datagrams } = this.#world;
    const bytes = roceDatagram({ from, to }, packet, payload);
    const fromPort = ROCE_PORT;
    return datagrams.forge({ from, fromPort, to, bytes, trafficClass: 0, hopLimit: 64 });
  }
}

/** The header of rdma_cm in a request. */
function addresses(from: string, to: string): Uint8Array {
  const [source, destination] = [addressBytes(from), addressBytes(to)];
  return writeIpRequest({ sourcePort: 7, source, destination }, new Uint8Array(0));
}

export function wireOf({ qp }: Life): PacketConnection | undefined {
  const wire = qp.program.host.queuePair(qp.program.deviceName, qp.qpn)?.wire;
  return wire instanceof PacketConnection ? wire : undefined;
}
