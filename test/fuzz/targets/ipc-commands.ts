/**
 * Every command with hostile arguments, ring contents and sudden ends, through the real schemas and
 * the real `ClientContext` over a real host. The state of a second client must not change.
 */
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
} from '#contract/protocol/commands';
import { decodeValue, encodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { RQE, RQE_BYTES, SGE_BYTES, SQE, SQE_BYTES } from '#contract/protocol/queue-layout';
import { Access, CMEventType, MTU, QPState, QPType } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { type ClientQuotas, DEFAULT_QUOTAS, QuotaLedger } from '#daemon/clients/objects/quotas';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { COMMAND_SCHEMAS } from '#daemon/ipc/command-schemas';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import type { Draws } from '#test/support/draws';
import { hexOf } from '#test/support/hex';
import { scribble } from '#test/support/mutate';
import { queueSizes } from '#test/support/queue-sizes';
import { assertReason } from '#test/support/reasons';
import {
  COMMAND_NAMES,
  cmParameters,
  type HandleKind,
  type Knowledge,
  REQUESTS,
} from '../ipc-commands.ts';
import { GuardedMemory, OWN_ADDRESS, OWN_BYTES, Victim } from '../ipc-victim.ts';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

/** Small quotas, which also reach refusals for lack of room. */
const QUOTAS: ClientQuotas = {
  objects: {
    ...DEFAULT_QUOTAS.objects,
    qp: 40,
    cq: 40,
    id: 40,
    mr: 200,
    buffer: 60,
    pd: 40,
    ah: 40,
  },
  sharedBytes: 16 * 2 ** 20,
  pinnedBytes: 2 ** 30,
  queueEntries: 20_000,
};
/** Maximum handles of one kind that a client remembers. */
const REMEMBERED = 24;
/** Inputs between two checks of the victim and its sockets. */
const LOOK_EVERY = 64;
/** Maximum turns until a connect request arrives over loopback. */
const TURNS_MAX = 100;

const KINDS: readonly HandleKind[] = [
  'context',
  'pd',
  'buffer',
  'mr',
  'mw',
  'ah',
  'channel',
  'cq',
  'srq',
  'qp',
  'id',
];

/** One hostile client and the handles it knows. */
class Hostile implements Knowledge {
  readonly context: ClientContext;
  readonly #memory = new GuardedMemory();
  readonly #handles = new Map<HandleKind, number[]>();
  /** Rings of queue pairs and receive queues, by handle. */
  readonly #rings = new Map<number, { readonly token: string; readonly rqOffset: number }>();
  readonly #ports: number[] = [];
  readonly #keys: number[] = [];
  /** Numbers of address handles and of queue pairs, for datagrams. */
  readonly #addresses: number[] = [];
  readonly #qpns: number[] = [];
  /** The latest connect request. */
  #requested: number | undefined;
  draws: Draws;

  constructor(directory: DeviceDirectory, draws: Draws) {
    this.draws = draws;
    for (const kind of KINDS) this.#handles.set(kind, []);
    this.context = new ClientContext({
      directory,
      memory: this.#memory,
      quotas: QUOTAS,
      sendEvent: (event) => this.#note(event),
      sendCompletion: () => undefined,
      label: 'hostile',
      pid: process.pid,
    });
  }

  handle(kind: HandleKind): number {
    const draw = this.draws.next();
    const from = (draw & 31) === 0 ? this.draws.pick(KINDS) : kind;
    const known = this.#handles.get(from) ?? [];
    if ((draw & 0x7e0) === 0 || known.length === 0) return this.draws.word();
    return known[(draw >>> 12) % known.length] ?? 0;
  }

  port = (): number => {
    const known = this.#ports;
    return this.draws.oneIn(4) || known.length === 0 ? 0 : this.draws.pick(known);
  };

  address(): bigint {
    const { draws } = this;
    return draws.oneIn(4) ? draws.wide() : OWN_ADDRESS + BigInt(draws.below(OWN_BYTES));
  }

  /** Executes a command, or a few that belong together. */
  act(draws: Draws): Outcome | Promise<Outcome> {
    this.draws = draws;
    const kind = draws.next();
    if ((kind & 7) === 0) return this.#ring();
    if ((kind & 0x78) === 0) return this.#openMuch();
    if ((kind & 0x7f_0000) === 0) return this.#connectPair();
    if ((kind & 0x7f_0000) === 0x1_0000) return this.#connectRoce();
    const makers = (kind & 0x380) !== 0;
    const name = makers ? draws.pick(MAKERS) : draws.pick(COMMAND_NAMES);
    return this.#command(name);
  }

  /** Ends the client as if killed; it must leak nothing. */
  close(): void {
    this.context.close();
    const { objects, sharedBytes, pinnedBytes } = this.context.usage();
    const left = Object.entries(objects).filter(([, count]) => count !== 0);
    claim(left.length === 0, `left: ${left.join(' ')}`);
    claim(sharedBytes === 0 && pinnedBytes === 0, 'memory is left');
    this.#memory.check();
  }

  #command<N extends CommandName>(name: N): Outcome | Promise<Outcome> {
    const make: (know: Knowledge) => CommandRequest<N> = REQUESTS[name];
    let request = make(this) as unknown as IpcValue;
    if (this.draws.oneIn(8)) request = decodeValue(encodeValue(request));
    if (this.draws.recording) this.draws.show(`${name} ${inspect(request)}`);
    const parsed = COMMAND_SCHEMAS[name].safeParse(request);
    if (!parsed.success) return 'no request';
    try {
      const reply = this.context.execute(name, parsed.data);
      if (!(reply instanceof Promise)) return this.#learn(request, reply);
      return reply.then((late) => this.#learn(request, late), refusedBy);
    } catch (error) {
      return refusedBy(error);
    }
  }

  /** Creates objects of every kind, as targets for later commands. */
  #openMuch(): Outcome {
    for (const name of STEPS) {
      const outcome = this.#command(name);
      if (outcome instanceof Promise) throw new Error(`${name} takes time`);
    }
    return 'opened';
  }

  /** A protection domain with memory, and a completion queue. */
  #resources(name: string | undefined, access: number): { pd: number; cq: number } {
    const { context } = this.#do('openDevice', { name });
    const { pd } = this.#do('allocPD', { context });
    const { cq } = this.#do('createCQ', { context, cqe: 64, channel: undefined });
    const source = { kind: 'process', address: OWN_ADDRESS } as const;
    const rest = { address: undefined, iova: undefined, access, key: undefined };
    this.#do('regMR', { pd, source, lengthBytes: OWN_BYTES, ...rest });
    return { pd, cq };
  }

  /** Connects two queue pairs of the client, so hostile rings and ends affect live streams. */
  async #connectPair(): Promise<Outcome> {
    try {
      const { pd, cq } = this.#resources(undefined, 15);
      const [active, passive] = [this.#newQP(pd, cq), this.#newQP(pd, cq)];
      const address = { address: '127.0.0.1', port: 0 };
      const listener = this.#do('cmCreateId', {});
      this.#do('cmBindAddr', { ...listener, address });
      const { localAddress = address } = this.#do('cmListen', { ...listener, backlog: 4 });
      const { id } = this.#do('cmCreateId', {});
      const destination = { ...address, port: localAddress.port };
      this.#do('cmResolveAddr', { id, destination, source: undefined, timeoutMs: 1000 });
      this.#do('cmResolveRoute', { id });
      this.#requested = undefined;
      this.#do('cmConnect', { id, qp: active, ...cmParameters(this) });
      for (let turn = 0; turn < TURNS_MAX && this.#requested === undefined; turn++) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      if (this.#requested === undefined) return 'no request';
      this.#do('cmAccept', { id: this.#requested, qp: passive, ...cmParameters(this) });
      return 'connected';
    } catch (error) {
      return refusedBy(error);
    }
  }

  /** Connects two queue pairs of the RoCE device, or makes them ready for datagrams. */
  #connectRoce(): Outcome {
    try {
      const { pd, cq } = this.#resources('roce', 31);
      this.#do('createAH', { pd, attributes: ROCE_ADDRESS });
      const type = this.draws.pick([QPType.rc, QPType.uc, QPType.ud]);
      const [left, right] = [this.#newQP(pd, cq, type), this.#newQP(pd, cq, type)];
      this.#connectTo(left, right, type);
      this.#connectTo(right, left, type);
      return 'ready to send';
    } catch (error) {
      return refusedBy(error);
    }
  }

  #connectTo(qp: number, peer: number, type: QPType): void {
    const { qpNum = 0 } = this.#do('queryQP', { qp: peer });
    for (const [state, attributes] of rocePath(type, qpNum)) {
      this.#do('modifyQP', { qp, state, attributes });
    }
    if (type === QPType.ud) this.#do('attachMcast', { qp, gid: ROCE_GROUP });
  }

  #newQP(pd: number, cq: number, type?: QPType): number {
    const capabilities = queueSizes(16, 16, 6, 80);
    const queues = { pd, sendCQ: cq, recvCQ: cq, srq: undefined };
    const init = { ...queues, capabilities, sqSigAll: true, type };
    return this.#do('createQP', init).qp;
  }

  #do<N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N> {
    const reply = this.context.execute(name, request);
    if (reply instanceof Promise) throw new Error(`${name} takes time`);
    this.#learn(request as unknown as IpcValue, reply);
    return reply;
  }

  #learn(request: IpcValue, reply: unknown): Outcome {
    const fields = reply as Record<string, unknown>;
    for (const kind of KINDS) {
      const handle = fields[kind];
      if (typeof handle === 'number') this.#remember(this.#handles.get(kind) ?? [], handle);
    }
    const { ring, qp, srq, rkey, rqOffset = 0 } = fields;
    const owner = typeof qp === 'number' ? qp : srq;
    if (typeof ring === 'object' && ring !== null && typeof owner === 'number') {
      const { token } = ring as { token: string };
      this.#rings.set(owner, { token, rqOffset: Number(rqOffset) });
    }
    if (typeof rkey === 'number') this.#remember(this.#keys, rkey);
    const { number, qpNum } = fields;
    if (typeof number === 'number') this.#remember(this.#addresses, number);
    if (typeof qpNum === 'number') this.#remember(this.#qpns, qpNum);
    const bound = fields['localAddress'] as { port: number } | undefined;
    if (bound !== undefined && 'backlog' in (request as object)) {
      this.#remember(this.#ports, bound.port);
    }
    return 'done';
  }

  #remember(list: number[], value: number): void {
    if (list.length >= REMEMBERED) list.shift();
    list.push(value);
  }

  #note(event: DeviceEvent): void {
    if (event.type !== 'cm') return;
    const { type, id } = event.event;
    if (type !== CMEventType.connectRequest) return;
    this.#requested = id;
    this.#remember(this.#handles.get('id') ?? [], id);
  }

  /** Writes into the ring of a queue pair or receive queue, and rings its doorbell. */
  #ring(): Outcome {
    const { draws } = this;
    const handle = this.handle(draws.oneIn(6) ? 'srq' : 'qp');
    const place = this.#rings.get(handle);
    const view = place === undefined ? undefined : this.#memory.views.get(place.token);
    if (place !== undefined && view !== undefined) {
      for (let count = draws.between(1, 4); count > 0; count--) {
        if (place.rqOffset === 0 || draws.oneIn(3)) this.#receive(view, place.rqOffset);
        else this.#send(view.subarray(0, place.rqOffset));
      }
      if (draws.recording) draws.show(`ring ${handle} ${hexOf(view.subarray(0, 4 * SQE_BYTES))}`);
    }
    this.context.doorbell(handle);
    return view === undefined ? 'doorbell' : 'ring';
  }

  #send(ring: Uint8Array): void {
    const { draws } = this;
    const count = Math.max(1, Math.floor(ring.length / SQE_BYTES));
    const at = (draws.oneIn(4) ? draws.below(count) : draws.below(Math.min(count, 4))) * SQE_BYTES;
    if (at + SQE_BYTES > ring.length) return;
    const view = new DataView(ring.buffer, ring.byteOffset + at, SQE_BYTES);
    view.setBigUint64(SQE.wrId, draws.wide(), true);
    view.setUint8(SQE.numSge, draws.oneIn(8) ? draws.below(256) : draws.below(7));
    view.setUint8(SQE.opcode, draws.oneIn(8) ? draws.below(256) : draws.below(22));
    view.setUint32(SQE.rkey, this.#key(), true);
    view.setBigUint64(SQE.raddr, this.address(), true);
    if (draws.oneIn(4) && this.#addresses.length > 0) this.#datagram(view);
    for (let sge = 0; sge < 6; sge++) this.#sge(view, SQE.sge + sge * SGE_BYTES);
    if (draws.oneIn(4)) scribble(ring, at + draws.below(SQE_BYTES), draws);
    view.setUint16(SQE.flags, draws.oneIn(4) ? draws.next() : 1 | (draws.next() & 0x1c), true);
  }

  /** Addresses a request to a queue pair that may exist, or to a group. */
  #datagram(view: DataView): void {
    const { draws } = this;
    const qpn = draws.oneIn(3) || this.#qpns.length === 0 ? 0xff_ffff : draws.pick(this.#qpns);
    view.setUint32(SQE.rkey, draws.oneIn(8) ? draws.word() : 1, true);
    view.setUint32(SQE.raddr, qpn, true);
    view.setUint32(SQE.raddr + 4, draws.pick(this.#addresses), true);
  }

  #receive(ring: Uint8Array, offset: number): void {
    const { draws } = this;
    const count = Math.max(1, Math.floor((ring.length - offset) / RQE_BYTES));
    const at = offset + draws.below(Math.min(count, 6)) * RQE_BYTES;
    if (at + RQE_BYTES > ring.length) return;
    const view = new DataView(ring.buffer, ring.byteOffset + at, RQE_BYTES);
    view.setBigUint64(RQE.wrId, draws.wide(), true);
    view.setUint8(RQE.numSge, draws.oneIn(8) ? draws.below(256) : draws.below(7));
    for (let sge = 0; sge < 6; sge++) this.#sge(view, RQE.sge + sge * SGE_BYTES);
    if (draws.oneIn(4)) scribble(ring, at + draws.below(RQE_BYTES), draws);
    view.setUint16(RQE.flags, draws.oneIn(4) ? draws.next() : 1, true);
  }

  #sge(view: DataView, at: number): void {
    const { draws } = this;
    view.setBigUint64(at, this.address(), true);
    view.setUint32(at + 8, draws.oneIn(6) ? draws.word() : draws.below(200), true);
    view.setUint32(at + 12, this.#key(), true);
  }

  #key(): number {
    const known = this.#keys;
    return this.draws.oneIn(4) || known.length === 0 ? this.draws.word() : this.draws.pick(known);
  }
}

const ROCE_ADDRESS = { grh: { dgid: '0000:0000:0000:0000:0000:ffff:7f00:0001', sgidIndex: 1 } };
const RIGHTS = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;
const ROCE_GROUP = '0000:0000:0000:0000:0000:ffff:e000:0001';

/** Commands that take a queue pair to RTS, connected to the queue pair `destQpNum` of the same device. */
function rocePath(
  type: QPType,
  destQpNum: number,
): readonly (readonly [QPState, NonNullable<CommandRequest<'modifyQP'>['attributes']>])[] {
  const place = { pkeyIndex: 0, portNum: 1 };
  if (type === QPType.ud) {
    return [
      [QPState.INIT, { ...place, qkey: 1 }],
      [QPState.RTR, {}],
      [QPState.RTS, { sqPsn: 0 }],
    ];
  }
  const path = { ahAttr: ROCE_ADDRESS, pathMtu: MTU.mtu256, destQpNum, rqPsn: 0 };
  const reliable = type === QPType.rc;
  const serves = reliable ? { maxDestRdAtomic: 2, minRnrTimer: 1 } : {};
  const asks = reliable ? { timeout: 8, retryCnt: 1, rnrRetry: 1, maxRdAtomic: 2 } : {};
  return [
    [QPState.INIT, { ...place, accessFlags: RIGHTS }],
    [QPState.RTR, { ...path, ...serves }],
    [QPState.RTS, { sqPsn: 0, ...asks }],
  ];
}

/** Commands that create objects, in order of dependency. */
const STEPS = [
  'openDevice',
  'allocPD',
  'createCompChannel',
  'createCQ',
  'createSRQ',
  'createQP',
  'createQP',
  'allocBuffer',
  'regMR',
  'cmCreateId',
] as const satisfies readonly CommandName[];
const MAKERS: readonly CommandName[] = [
  ...STEPS,
  'allocMW',
  'createAH',
  'modifyQP',
  'attachMcast',
  'cmBindAddr',
  'cmListen',
  'cmListen',
  'cmResolveAddr',
  'cmResolveAddr',
  'cmConnect',
  'cmConnect',
  'cmAccept',
  'cmAccept',
  'cmDisconnect',
];

function refusedBy(error: unknown): Outcome {
  if (!isVerbsError(error)) throw error;
  assertReason(error.code, error.message);
  return error.code;
}

function inspect(value: IpcValue): string {
  return JSON.stringify(value, (_key, each: unknown) =>
    typeof each === 'bigint'
      ? `${each}n`
      : each instanceof Uint8Array
        ? `${each.length} bytes`
        : typeof each === 'number' && !Number.isFinite(each)
          ? String(each)
          : each,
  );
}

class CommandState implements FuzzState {
  readonly #host = new RnicHost({
    system: hostSystem(),
    roce: ROCE_NETWORK,
    devices: [
      { name: 'fuzzed', addresses: ['127.0.0.1'] },
      { name: 'roce', transport: 'roce', addresses: ['127.0.0.1'] },
    ],
  });
  readonly #directory = new DeviceDirectory(this.#host, undefined);
  readonly #victim = new Victim(this.#directory);
  #hostile: Hostile | undefined;
  #inputs = 0;

  run(draws: Draws): Outcome | Promise<Outcome> {
    this.#hostile ??= new Hostile(this.#directory, draws);
    const outcome = this.#hostile.act(draws);
    this.#inputs += 1;
    if (draws.oneIn(400)) {
      this.#hostile.close();
      this.#hostile = undefined;
    }
    if (this.#inputs % LOOK_EVERY !== 0) return outcome;
    return this.#look(outcome);
  }

  async close(): Promise<void> {
    this.#hostile?.close();
    this.#victim.close();
    for (const { nic, name } of this.#host.devices) {
      claim(nic.listQPs().length === 0, `${name} has queue pairs`);
    }
    await this.#host.close();
    claim(this.#host.connections().length === 0, 'connections are left');
  }

  /** Lets sockets run. */
  async #look(outcome: Outcome | Promise<Outcome>): Promise<Outcome> {
    await new Promise((resolve) => setImmediate(resolve));
    this.#victim.check();
    this.#host.assertDeepInvariants();
    this.#hostile?.context.assertDeepInvariants();
    return outcome;
  }
}

export const ipcCommand: FuzzTarget = {
  name: 'ipc-command',
  about: 'hostile commands, rings and sudden ends of clients beside a victim, over a real host',
  batchInputs: 4_000,
  weight: 8_000,
  smokeInputs: 6_000,
  // Quotas that are not credited when a buffer is freed.
  canary: canary(4_000, QuotaLedger.prototype, 'give', (give, ...given) => {
    if (given[0] !== 'sharedBytes' || given[1] % 2048 !== 0) give(...given);
  }),
  open: () => new CommandState(),
};
