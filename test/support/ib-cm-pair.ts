/** Two communication managers, a network between them and one clock. */
import { QPType } from '#contract/verbs/enums';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import type { IbCmEvent } from '#daemon/roce/cm/cm-events';
import type { CmListener } from '#daemon/roce/cm/cm-listener';
import { type CmPath, type CmPort, sameGid } from '#daemon/roce/cm/cm-path';
import type { CmAccount, CmEndFacts, IbCmLimits } from '#daemon/roce/cm/cm-types';
import { CommunicationManager } from '#daemon/roce/cm/communication-manager';
import { type CmMessageName, parseCmMessage } from '#daemon/roce/wire/cm-message';
import { bytesOf } from './hex.ts';

/** rdma_cm's service id of TCP port 7471. */
export const SERVICE = 0x0106_1d2f;

/** The ends' queue pair parameters. */
export const FACTS: CmEndFacts = {
  qpn: 0x11,
  responderResources: 7,
  initiatorDepth: 5,
  flowControl: true,
  rnrRetry: 6,
  srq: false,
  privateData: Uint8Array.of(1, 2, 3),
};

type EventOf<T extends IbCmEvent['type']> = Extract<IbCmEvent, { readonly type: T }>;

/** A host with one port. */
export class CmEnd {
  readonly manager: CommunicationManager;
  readonly gid: Uint8Array;
  readonly port: CmPort;
  /** Events in order; `take` removes one. */
  readonly events: IbCmEvent[] = [];
  readonly sent: CmMessageName[] = [];
  /** The accounts to which connections are charged, by the tag of their owner or listener. */
  readonly accounts = new Map<unknown, CmAccount>();

  readonly #settle: () => void;

  /** `settle`: delivers the messages in flight. */
  constructor(number: number, limits?: Partial<IbCmLimits>, settle = () => {}) {
    this.#settle = settle;
    let seed = number * 0x9e37_79b9;
    const random32 = () => {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
      return seed;
    };
    const accountOf = (tag: unknown) => this.accounts.get(tag);
    this.manager = new CommunicationManager({ random32, limits, accountOf });
    const gid = bytesOf(`00*10 ffff 0a00000${number}`);
    this.gid = gid;
    this.port = {
      name: `roce${number}`,
      guid: bytesOf(`02*7 0${number}`),
      indexOf: (wanted) => (sameGid(wanted, gid) ? 1 : undefined),
    };
  }

  listen(backlog = 8): CmListener {
    const scope = { port: undefined, gid: undefined, family: undefined };
    return this.manager.listen(SERVICE, scope, backlog, 'listener');
  }

  pathTo(peer: Pick<CmEnd, 'gid'>): CmPath {
    return {
      port: this.port,
      sgid: this.gid,
      sgidIndex: 1,
      dgid: peer.gid,
      flowLabel: 0xabcde,
      hopLimit: 64,
      trafficClass: 0x20,
      pkey: 0xffff,
      pathMtu: 3,
      packetLifeTime: 18,
    };
  }

  connect(peer: CmEnd, now: number, facts: Partial<CmEndFacts> = {}): CmConnection {
    const request = {
      ...FACTS,
      serviceId: SERVICE,
      type: QPType.rc,
      path: this.pathTo(peer),
      retryCount: 3,
      ackTimeout: undefined,
      ...facts,
    };
    return this.manager.connect(request, 'dialer', now);
  }

  /** The first event once all is delivered, which must be of this type. */
  take<T extends IbCmEvent['type']>(type: T): EventOf<T> {
    this.#settle();
    const event = this.events.shift();
    if (event?.type !== type) throw new Error(`${event?.type ?? 'nothing'} instead of ${type}`);
    return event as EventOf<T>;
  }

  get eventTypes(): string[] {
    this.#settle();
    return this.events.map(({ type }) => type);
  }
}

/** The fate of a MAD: how many times it arrives. */
type Fate = (mad: Uint8Array, from: CmEnd, name: CmMessageName) => readonly Uint8Array[];

export class CmPair {
  readonly active: CmEnd;
  readonly passive: CmEnd;
  now = 0;
  /** Default: each MAD arrives once. */
  fate: Fate = (mad) => [mad];

  constructor(limits?: Partial<IbCmLimits>) {
    this.active = new CmEnd(1, limits, () => this.settle());
    this.passive = new CmEnd(2, limits, () => this.settle());
  }

  get ends(): readonly CmEnd[] {
    return [this.active, this.passive];
  }

  /** Delivers until nothing is left to do at this instant. */
  settle(): void {
    for (let any = true; any; ) {
      any = false;
      for (const end of this.ends) {
        for (;;) {
          const effect = end.manager.pollEffect();
          if (effect === undefined) break;
          any = true;
          if (effect.type === 'event') end.events.push(effect.event);
          else this.#carry(end, effect.path, effect.mad);
        }
        end.manager.assertInvariants();
      }
    }
  }

  #carry(from: CmEnd, path: CmPath, mad: Uint8Array): void {
    const message = parseCmMessage(mad);
    if (typeof message === 'string') throw new Error(`sent what is ${message}`);
    from.sent.push(message.name);
    const to = this.ends.find(({ gid }) => sameGid(gid, path.dgid));
    if (to === undefined) return;
    for (const copy of this.fate(mad, from, message.name)) {
      to.manager.handleMad(copy, to.port, path.sgid, path.dgid, this.now);
    }
  }

  /** Advances the clock, and runs everything that falls due. */
  advance(micros: number): void {
    const end = this.now + micros;
    for (;;) {
      this.settle();
      const next = Math.min(...this.ends.map(({ manager }) => manager.nextDeadline()));
      if (next > end) break;
      this.now = Math.max(this.now, next);
      for (const { manager } of this.ends) manager.handleDeadline(this.now);
    }
    this.now = end;
    this.settle();
  }

  /** A request that waits at the passive end. */
  requested(facts: Partial<CmEndFacts> = {}): { dialer: CmConnection; request: CmConnection } {
    const dialer = this.active.connect(this.passive, this.now, facts);
    return { dialer, request: this.passive.take('request').connection };
  }

  /** A connection that is established at both ends, whose events are taken. */
  established(): { dialer: CmConnection; acceptor: CmConnection } {
    const { dialer, request } = this.requested();
    this.passive.manager.accept(request, { ...FACTS, qpn: 0x22 }, this.now);
    this.active.take('reply');
    this.active.manager.establish(dialer);
    this.passive.take('established');
    return { dialer, acceptor: request };
  }
}
