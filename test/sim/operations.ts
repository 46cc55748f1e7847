/** Every operation that a run can draw; those between programs are in `disturbances.ts`. */
import type { CMParameters } from '#contract/protocol/commands';
import { QPState } from '#contract/verbs/enums';
import { ObjectWindow } from '#daemon/clients/objects/object-window';
import { Disturbances } from './disturbances.ts';
import { tokenData } from './flow-token.ts';
import { HostilePeer, MANNERS, STUBBORN } from './hostile.ts';
import { drawWeighted, OPERATIONS, type OperationName } from './plan.ts';
import { Posting } from './posting.ts';
import { must } from './rules.ts';
import { HostileAssociation, SCTP_MANNERS } from './sctp/hostile-association.ts';
import { type ClientId, programOf, type SimClient } from './sim-client.ts';
import type { SimHost } from './sim-host.ts';
import { SimId } from './sim-id.ts';
import type { SimPort } from './sim-network.ts';
import type { Party, SimQp } from './sim-qp.ts';
import { HOSTILE_ADDRESS, type World } from './world.ts';

const QPS_MAX = 5;
const WARM_CONNECTS_MAX = 4;
const WARM_MICROS = 50_000;
const IDS_MAX = 12;
const LISTENERS_MAX = 6;
const HOSTILES_MAX = 6;
const BACKLOG_MAX = 8;
const PRIVATE_DATA_MAX_BYTES = 400;
/** Enough messages that a peer that never reads leaves some in the stream's own buffers. */
const DEAF_DEPTH = 3;

/** See the module's comment. */
export class Operations {
  readonly #world: World;
  readonly posting: Posting;
  readonly disturbances: Disturbances;
  readonly #all: Readonly<Record<OperationName, () => void>>;

  constructor(world: World) {
    this.#world = world;
    this.posting = new Posting(world);
    this.disturbances = new Disturbances(world);
    this.#all = {
      listen: () => this.#listen(),
      connect: () => this.#connect(),
      answer: () => this.answer(),
      post: () => this.#post(),
      postLate: () => this.#postLate(),
      receive: () => this.#receive(),
      poll: () => this.#poll(),
      leave: () => this.#leave(),
      disconnect: () => this.#disconnect(),
      destroyId: () => this.#destroyId(),
      destroyQp: () => this.#destroyQp(),
      modify: () => this.#modify(),
      reuse: () => this.#reuse(),
      kill: () => this.#kill(),
      bind: () => this.#bind(),
      stale: () => this.#stale(),
      lose: () => this.#lose(),
      deregister: () => this.#deregister(),
      fault: () => this.disturbances.fault(),
      heal: () => this.disturbances.heal(),
      link: () => this.disturbances.link(),
      hostile: () => this.#hostile(),
      reset: () => this.#reset(),
      query: () => this.#query(),
    };
  }

  /** Draws an operation by the plan's weights and runs it. */
  act(): void {
    const { prng, plan } = this.#world;
    const name = drawWeighted(prng, OPERATIONS, plan.operations);
    this.#world.log?.(name);
    this.#all[name]();
  }

  // Connections

  /** Connects some programs before anything fails. */
  async warmUp(): Promise<void> {
    const { prng } = this.#world;
    for (let count = prng.between(1, 3); count > 0; count -= 1) this.#listen();
    for (let count = prng.between(1, WARM_CONNECTS_MAX); count > 0; count -= 1) this.#connect();
    const until = this.#world.time.now + WARM_MICROS;
    while (await this.#world.step(until)) this.answer();
  }

  #listen(): void {
    const { prng, listeners, plan } = this.#world;
    const client = this.#client();
    if (client === undefined || listeners.size >= LISTENERS_MAX) return;
    const id = new SimId(client, client.call('cmCreateId', {}).id, 'listener');
    client.ids.set(id.handle, id);
    const any = plan.devicesPerHost === 1 && prng.oneIn(3);
    const address = { address: any ? '0.0.0.0' : client.address, port: 0 };
    const { localAddress } = client.call('cmBindAddr', { id: id.handle, address });
    client.call('cmListen', { id: id.handle, backlog: prng.between(1, BACKLOG_MAX) });
    id.address = client.address;
    id.port = localAddress?.port ?? 0;
    listeners.add(id);
  }

  #connect(): void {
    const { prng, listeners } = this.#world;
    const client = this.#client();
    if (client === undefined || client.ids.size >= IDS_MAX) return;
    const listener = listeners.size === 0 ? undefined : prng.choose([...listeners]);
    if (listener === undefined) return;
    const port = prng.oneIn(20) ? 9 : listener.port;
    this.connectTo(client, { address: listener.address, port }, false);
  }

  /** Connects a queue pair of `client`. */
  connectTo(
    client: SimClient,
    destination: { readonly address: string; readonly port: number },
    hostile: boolean,
  ): ClientId | undefined {
    const qp = this.#idleQp(client);
    if (qp === undefined) return undefined;
    const { prng, time } = this.#world;
    const id = new SimId(client, client.call('cmCreateId', {}).id, 'initiator');
    client.ids.set(id.handle, id);
    const source = { address: client.address, port: 0 };
    if (prng.oneIn(4)) client.call('cmBindAddr', { id: id.handle, address: source });
    const from = prng.oneIn(2) ? source : undefined;
    const resolved = client.attempt('cmResolveAddr', {
      id: id.handle,
      destination,
      source: from,
      timeoutMs: 1000,
    });
    if (typeof resolved === 'string' || id.device !== client.deviceName) {
      client.destroyId(id);
      return undefined;
    }
    if (prng.oneIn(30)) {
      client.destroyId(id);
      return undefined;
    }
    client.call('cmResolveRoute', { id: id.handle });
    const { party } = qp;
    const more = new Uint8Array(prng.oneIn(4) ? prng.below(PRIVATE_DATA_MAX_BYTES) : 0).fill(7);
    const flow = this.#world.newFlow(party, hostile, (token) => tokenData(token, more));
    party.flow = flow;
    id.flow = flow;
    id.party = party;
    id.askedAt = time.now;
    this.#world.log?.(`  ${client.name} connects ${id.name} with ${qp.name}`);
    const connected = client.attempt('cmConnect', {
      id: id.handle,
      qp: qp.handle,
      privateData: flow.request,
      ...this.#depths(),
      wire: undefined,
    });
    if (typeof connected === 'string') {
      this.#checkInUse(connected, qp);
      id.party = undefined;
      party.flow = undefined;
      client.destroyId(id);
      return undefined;
    }
    return id;
  }

  /** Answers a connect request. */
  answer(): void {
    const { prng, time, requests } = this.#world;
    if (requests.size === 0) return;
    const id = prng.choose([...requests]);
    requests.delete(id);
    const { client } = id;
    const privateData = new Uint8Array(prng.oneIn(3) ? prng.below(PRIVATE_DATA_MAX_BYTES) : 0);
    privateData.fill(9);
    if (prng.oneIn(10)) {
      client.destroyId(id);
      return;
    }
    const qp = this.#idleQp(client);
    if (qp === undefined || prng.oneIn(10) || sharesWithTainted(qp, id.flow?.initiator)) {
      client.attempt('cmReject', { id: id.handle, privateData });
      id.flow?.excuse('rejected');
      client.destroyId(id);
      return;
    }
    const { party } = qp;
    const { flow } = id;
    if (flow === undefined) throw new Error('a connect request without a flow');
    if (party.tainted) flow.excuse('work of an earlier attempt');
    if (client.damaged) flow.excuse('lost memory');
    if (client.host.faulty) flow.excuse('fault');
    const accepted = client.attempt('cmAccept', {
      id: id.handle,
      qp: qp.handle,
      privateData,
      ...this.#depths(),
      wire: undefined,
    });
    if (typeof accepted === 'string') {
      if (accepted !== 'ECONNRESET') this.#checkInUse(accepted, qp);
      flow.excuse('the peer closed before it was accepted');
      client.destroyId(id);
      return;
    }
    this.#world.log?.(`  ${client.name} accepts ${id.name} with ${qp.name}`);
    flow.responder = party;
    flow.reply = privateData;
    party.flow = flow;
    id.party = party;
    id.askedAt = time.now;
  }

  /** A queue pair that was reset may still be bound to a connect from before the reset. */
  #checkInUse(code: string, qp: SimQp): void {
    const bound = [...programOf(qp).ids.values()].some(({ party, outcome }) => {
      return party?.qp === qp && outcome === undefined;
    });
    must(code === 'EISCONN' && bound, 'refused', () => `${qp.name}: ${code}`);
  }

  /** Depths to request. Revision 1 cannot negotiate them, so both ends need the default. */
  #depths(): Pick<CMParameters, 'initiatorDepth' | 'responderResources'> {
    const { prng, plan } = this.#world;
    const depth = (): number | undefined => {
      return plan.wire.mpaRevision === 1 || prng.oneIn(2) ? undefined : prng.between(1, 4);
    };
    return { initiatorDepth: depth(), responderResources: depth() };
  }

  #disconnect(): void {
    const { prng } = this.#world;
    const open = this.#world.clients.flatMap(({ ids }) =>
      [...ids.values()].filter(({ outcome, ended }) => outcome === 'established' && !ended),
    );
    if (open.length === 0) return;
    const id = prng.choose(open);
    this.disconnect(id);
    // Some programs keep posting.
    const { party } = id;
    if (party?.current === true && prng.oneIn(2)) this.posting.batch(party, 4);
  }

  /** Asks for a graceful end. */
  disconnect(id: ClientId): void {
    const { client, party } = id;
    this.#world.log?.(`  ${client.name} disconnects ${id.name}`);
    const asked = client.attempt('cmDisconnect', { id: id.handle });
    must(typeof asked !== 'string', 'refused', () => `disconnect: ${String(asked)}`);
    id.endAsked = true;
    if (party !== undefined) party.disconnectAskedAt ??= this.#world.time.now;
  }

  /** Fills a send queue, then destroys the queue pair or ends the program at once. */
  #leave(): void {
    const { prng } = this.#world;
    const party = this.#party(({ disconnectAskedAt, flow }) => {
      return disconnectAskedAt === undefined && flow?.hostile === false;
    });
    if (party === undefined) return;
    const { qp } = party;
    const client = programOf(qp);
    this.posting.fill(party);
    if (prng.oneIn(2)) {
      const id = [...client.ids.values()].find((each) => each.party === party);
      if (id?.outcome === 'established' && !id.ended) this.disconnect(id);
    }
    if (prng.oneIn(6)) this.#end(client);
    else client.destroyQp(qp);
  }

  #destroyId(): void {
    const { prng } = this.#world;
    const client = this.#client();
    if (client === undefined || client.ids.size === 0) return;
    client.destroyId(prng.choose([...client.ids.values()]));
  }

  // Work

  #post(): void {
    const party = this.#party(({ disconnectAskedAt }) => disconnectAskedAt === undefined);
    if (party !== undefined) this.posting.batch(party, this.#world.plan.queueDepth);
  }

  #postLate(): void {
    const party = this.#party(({ disconnectAskedAt }) => disconnectAskedAt !== undefined);
    if (party !== undefined) this.posting.batch(party, 3);
  }

  #receive(): void {
    const { prng } = this.#world;
    const client = this.#client();
    if (client === undefined || client.qps.size === 0) return;
    const qp = prng.choose([...client.qps]);
    this.posting.receives(qp, prng.between(1, qp.depth));
  }

  #poll(): void {
    const { prng, plan } = this.#world;
    const client = this.#client();
    if (client === undefined) return;
    client.poll(prng.oneIn(plan.slowness) ? undefined : prng.between(1, 3));
    for (const cq of client.cqs) if (prng.oneIn(2)) cq.arm();
  }

  #bind(): void {
    const party = this.#party(({ disconnectAskedAt, flow }) => {
      return disconnectAskedAt === undefined && flow?.hostile === false;
    });
    if (party !== undefined) this.posting.bind(party);
  }

  #stale(): void {
    for (const client of this.#world.clients) {
      for (const window of client.windows) {
        const { qp } = window.party;
        const { peer } = qp.party;
        // Only queue pairs that still exist, with another peer.
        if (window.party === qp.party || !qp.alive || peer === undefined) continue;
        if (!peer.established || peer.ended !== undefined || peer.disconnectAskedAt !== undefined)
          continue;
        if (peer.abandoned || window.state !== 'over' || window.misused) continue;
        this.posting.useStale(peer, window);
        return;
      }
    }
  }

  // Queue pairs

  #destroyQp(): void {
    const { prng } = this.#world;
    const client = this.#client();
    if (client === undefined || client.qps.size === 0) return;
    client.destroyQp(prng.choose([...client.qps]));
  }

  #modify(): void {
    const { prng, time } = this.#world;
    const client = this.#client();
    if (client === undefined || client.qps.size === 0) return;
    const qp = prng.choose([...client.qps]);
    const state = prng.choose([QPState.SQD, QPState.SQE, QPState.ERR, QPState.RESET]);
    this.#world.log?.(`  ${client.name} moves ${qp.name} to ${state}`);
    if (state === QPState.RESET) {
      this.#toReset(qp);
      return;
    }
    const moved = client.attempt('modifyQP', { qp: qp.handle, state });
    if (typeof moved === 'string') return;
    if (state === QPState.SQD) qp.party.disconnectAskedAt ??= time.now;
    else qp.party.flow?.excuse('queue pair moved');
    qp.party.abandoned ||= state === QPState.ERR;
  }

  #reuse(): void {
    const { prng } = this.#world;
    const over = this.#world.clients.flatMap(({ qps }) =>
      [...qps].filter((qp) => {
        return qp.state === QPState.ERR || (qp.hasOpenWindow && prng.oneIn(3));
      }),
    );
    if (over.length > 0) this.#toReset(prng.choose(over));
  }

  #toReset(qp: SimQp): void {
    const client = programOf(qp);
    client.poll();
    const { party } = qp;
    this.#world.log?.(`  ${client.name} resets ${qp.name}`);
    party.flow?.excuse('queue pair reset');
    const unconnected = qp.state === QPState.INIT;
    client.call('modifyQP', { qp: qp.handle, state: QPState.RESET });
    client.endLife(qp);
    const next = qp.begin(() => client.tier());
    for (const id of client.ids.values()) {
      // A connect in progress continues with the new life, unless the old one had the connection.
      if (!unconnected || id.party !== party || id.outcome !== undefined) continue;
      id.party = next;
      party.flow?.handOver(party, next);
    }
    client.call('modifyQP', { qp: qp.handle, state: QPState.INIT });
  }

  // Failures

  #kill(): void {
    const { prng } = this.#world;
    const client = this.#client();
    if (client === undefined) return;
    this.#end(client);
    if (prng.oneIn(2)) this.#world.addClient(client.host);
  }

  #end(client: SimClient): void {
    client.kill();
    this.#world.removeClient(client);
  }

  #lose(): void {
    const { prng } = this.#world;
    const client = this.#client();
    if (client === undefined || client.qps.size === 0) return;
    const qp = prng.choose([...client.qps]);
    const areas = [qp.party.target.area, qp.sink.area, (qp.inbox ?? qp.sink).area];
    const area = prng.choose(areas);
    if (area.tier === 'local') return;
    area.lost = true;
    this.#world.log?.(`  ${client.name} loses memory of ${qp.name}`);
    client.damaged = true;
    for (const { party } of client.qps) party.flow?.excuse('lost memory');
    for (const { flow } of client.ids.values()) flow?.excuse('lost memory');
  }

  #deregister(): void {
    const party = this.#party(() => true);
    if (party === undefined) return;
    const client = programOf(party.qp);
    client.damaged = true;
    for (const { party: each } of client.qps) each.flow?.excuse('memory deregistered');
    client.attempt('deregMR', { mr: client.source.mr });
  }

  #hostile(): void {
    const { prng, hostiles, hostileHost, listeners } = this.#world;
    if (hostiles.size >= HOSTILES_MAX) return;
    if (this.#world.plan.carriers[0] === 'sctp') {
      this.#hostileAssociation();
      return;
    }
    const manner = prng.choose(prng.oneIn(3) ? STUBBORN : MANNERS);
    const port = hostileHost.hold(HOSTILE_ADDRESS, 0);
    if (prng.oneIn(2) && listeners.size > 0) {
      const remote = prng.choose([...listeners]);
      const made = (link: Parameters<Parameters<SimPort['dial']>[1]>[0]): void => {
        hostiles.add(new HostilePeer(this.#world, link, manner, true));
      };
      port.dial(remote, made, () => undefined);
      return;
    }
    port.listen((link) => hostiles.add(new HostilePeer(this.#world, link, manner, false)));
    const client = this.#client();
    if (client === undefined) return;
    const id = this.connectTo(client, { address: HOSTILE_ADDRESS, port: port.port }, true);
    if (manner === 'trickle' && id?.party !== undefined) this.posting.unanswered(id.party);
    if (manner === 'deaf-bad-stag' && id?.party !== undefined) {
      // More than the network and the stream's buffers hold.
      for (let count = 0; count < DEAF_DEPTH; count += 1) this.posting.flood(id.party);
    }
  }

  #hostileAssociation(): void {
    const { prng, hostiles, listeners, network } = this.#world;
    const manner = prng.choose(SCTP_MANNERS);
    const options = { adaptation: manner === 'other-adaptation' ? 2 : 1, streamCount: 1 };
    const port = network.messages.hold({ address: HOSTILE_ADDRESS, port: 0 }, options);
    if (prng.oneIn(2) && listeners.size > 0) {
      const remote = prng.choose([...listeners]);
      port.open(
        remote,
        (association) =>
          hostiles.add(new HostileAssociation(this.#world, association, manner, true)),
        () => undefined,
      );
      return;
    }
    port.listen((association) => {
      hostiles.add(new HostileAssociation(this.#world, association, manner, false));
    });
    const client = this.#client();
    if (client === undefined) return;
    const id = this.connectTo(client, { address: HOSTILE_ADDRESS, port: port.port }, true);
    if (id?.party === undefined) return;
    if (manner === 'trickle') this.posting.unanswered(id.party);
    if (manner !== 'deaf-bad-stag') return;
    for (let count = 0; count < DEAF_DEPTH; count += 1) this.posting.flood(id.party);
  }

  #reset(): void {
    const { prng, hosts } = this.#world;
    const host: SimHost = prng.choose(hosts);
    for (const client of this.#world.clientsOf(host)) this.#end(client);
    void host.host.reset();
    this.#world.addClient(host);
  }

  #query(): void {
    const client = this.#client();
    if (client === undefined) return;
    for (const { handle } of client.qps) client.call('queryQP', { qp: handle });
    client.context.usage();
    for (const kind of ['qps', 'mrs', 'cqs'] as const) {
      const owner = { client: 1, pid: 1, program: 'simulation' };
      const window = new ObjectWindow(kind, {});
      client.context.listObjects(owner, window);
      void window.describe((run) => run());
    }
    for (const { host } of this.#world.hosts) host.connections();
  }

  // Choices

  #client(): SimClient | undefined {
    const { clients, prng } = this.#world;
    return clients.length === 0 ? undefined : prng.choose(clients);
  }

  /** A party whose program believes that its connection is up. */
  #party(wanted: (party: Party) => boolean): Party | undefined {
    const parties: Party[] = [];
    for (const { qps } of this.#world.clients) {
      for (const { party } of qps) {
        if (party.established && !party.abandoned && party.ended === undefined && wanted(party)) {
          parties.push(party);
        }
      }
    }
    return parties.length === 0 ? undefined : this.#world.prng.choose(parties);
  }

  /** A queue pair that may connect. */
  #idleQp(client: SimClient): SimQp | undefined {
    // Prefer one that had windows: a peer may remember their keys.
    const idle = [...client.qps].filter((qp) => {
      const { flow, abandoned } = qp.party;
      return flow === undefined && !abandoned && qp.state === QPState.INIT;
    });
    const [first] = idle;
    if (first !== undefined) return idle.find(({ hadWindow }) => hadWindow) ?? first;
    return client.qps.size < QPS_MAX ? client.createQp() : undefined;
  }
}

/**
 * True if one end still has to send work of an earlier attempt and the other end uses a shared
 * receive queue: these messages, which the model does not count, would take receives that other
 * queue pairs rely on.
 */
function sharesWithTainted(qp: SimQp, initiator: Party | undefined): boolean {
  if (initiator === undefined) return false;
  const { party } = qp;
  return (
    (party.tainted && initiator.qp.srq !== undefined) || (initiator.tainted && qp.srq !== undefined)
  );
}
