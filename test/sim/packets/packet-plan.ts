/** The plan of a run over RoCE: operations, work, sizes, times and network of a seed. */
import { MTU } from '#contract/verbs/enums';
import type { Prng } from '#test/support/prng';
import type { Tier } from '../sim-memory.ts';
import type { PathTraits, SocketTraits } from './datagram-network.ts';

/** Operations of a run, by name. */
export const PACKET_OPERATIONS = [
  'join',
  'serve',
  'ask',
  'listen',
  'share',
  'pipeline',
  'connect',
  'answer',
  'post',
  'receive',
  'poll',
  'tick',
  'disconnect',
  'destroyId',
  'destroyQp',
  'drain',
  'fail',
  'reuse',
  'kill',
  'bind',
  'stale',
  'lose',
  'deregister',
  'fault',
  'heal',
  'interrupt',
  'address',
  'blind',
  'seeing',
  'group',
  'datagram',
  'lossy',
  'limit',
  'deep',
  'query',
] as const;
export type PacketOperation = (typeof PACKET_OPERATIONS)[number];

/** Work requests of reliable connections, by kind. */
export const PACKET_KINDS = [
  'send',
  'sendImmediate',
  'sendInvalidate',
  'write',
  'writeImmediate',
  'read',
  'readTick',
  'fetchAdd',
  'compareSwap',
  'addShared',
  'badKey',
  'tooLong',
  'badLocal',
  'noRight',
] as const;
export type PacketKind = (typeof PACKET_KINDS)[number];

export interface PacketPlan {
  readonly hosts: number;
  readonly programsPerHost: number;
  readonly devicesPerHost: number;
  /** The device of each host serves all its addresses, which may change. */
  readonly open: boolean;
  readonly six: boolean;
  /** Each host also has an iWARP device. */
  readonly iwarp: boolean;
  readonly actions: number;
  /** Maximum steps of time between two operations. */
  readonly stepsMax: number;
  readonly operations: Readonly<Record<PacketOperation, number>>;
  readonly kinds: Readonly<Record<PacketKind, number>>;
  /** Size of a receive, and of the longest message. */
  readonly messageBytes: number;
  readonly queueDepth: number;
  readonly tiers: readonly Tier[];
  /** One poll in this many takes every completion. */
  readonly slowness: number;
  /** Programs post receives only when told to. */
  readonly lateReceives: boolean;
  /** Attributes of queue pairs that programs connect themselves. */
  readonly pathMtu: MTU;
  readonly timeout: number;
  readonly depth: number;
  readonly minRnrTimer: number;
  readonly traits: (prng: Prng) => PathTraits;
  readonly sockets: SocketTraits;
  readonly tapped: boolean;
}

/** Weight of each operation. A seed turns some off and scales the others by 0.5 to 2. */
const USUAL: Readonly<Record<PacketOperation, number>> = {
  join: 14,
  serve: 2,
  ask: 4,
  listen: 4,
  share: 10,
  pipeline: 3,
  connect: 20,
  answer: 30,
  post: 70,
  receive: 20,
  poll: 40,
  tick: 20,
  disconnect: 12,
  destroyId: 2,
  destroyQp: 3,
  drain: 6,
  fail: 3,
  reuse: 14,
  kill: 1,
  bind: 8,
  stale: 4,
  lose: 2,
  deregister: 1,
  fault: 3,
  heal: 3,
  interrupt: 4,
  address: 2,
  blind: 6,
  seeing: 2,
  group: 6,
  datagram: 20,
  lossy: 20,
  limit: 4,
  deep: 1,
  query: 2,
};
/** Always on: a run without these would do nothing. */
const ALWAYS: readonly PacketOperation[] = ['join', 'post', 'receive', 'poll', 'reuse'];

const MTUS = [576, 1064, 1500, 4200, 9000] as const;
/** 4 µs · 2^15: 134 ms, eight times; an agent may take longer than that to read a message. */
const TIMEOUT = 15;
const AGENT_TIMEOUT = 18;
/** Bytes of a queue of messages: allocating memory dominates a small run's cost. */
const QUEUE_BYTES = 24_000;

/** Draws the plan of a run. */
export function drawPacketPlan(prng: Prng): PacketPlan {
  const six = prng.oneIn(4);
  const iwarp = prng.oneIn(4);
  const operations = { ...USUAL };
  for (const name of PACKET_OPERATIONS) {
    if (!ALWAYS.includes(name) && prng.oneIn(2)) operations[name] = 0;
    else operations[name] = Math.ceil((operations[name] * prng.between(2, 8)) / 4);
  }
  // rdma_cm's commands with addresses are simulated for IPv4, and for one wire.
  if (six || iwarp) operations.share = 0;
  // None has an effect without the other.
  if (operations.listen > 0 || operations.connect > 0 || operations.share > 0) {
    operations.listen ||= USUAL.listen;
    operations.connect ||= USUAL.connect;
    operations.answer ||= USUAL.answer;
  }
  if (operations.share > 0) operations.ask ||= USUAL.ask;
  if (operations.ask > 0) {
    operations.serve ||= USUAL.serve;
    operations.answer ||= USUAL.answer;
  }
  const on = (usual: number): number => (prng.oneIn(3) ? 0 : prng.between(1, usual));
  const misuse = (): number => (prng.oneIn(6) ? 1 : 0);
  const kinds: Record<PacketKind, number> = {
    send: prng.between(4, 12),
    sendImmediate: on(5),
    sendInvalidate: on(3),
    write: on(10),
    writeImmediate: on(5),
    read: on(8),
    readTick: on(4),
    fetchAdd: on(4),
    compareSwap: on(4),
    addShared: on(4),
    badKey: misuse(),
    tooLong: misuse(),
    badLocal: misuse(),
    noRight: misuse(),
  };
  const queueDepth = prng.choose([2, 4, 8, 16]);
  const messageBytes = prng.choose([64, 300, 1500, Math.floor(QUEUE_BYTES / queueDepth)]);
  const good = prng.oneIn(4);
  const harm = (choices: readonly number[]): number => (good ? 0 : prng.choose(choices));
  const lostOneIn = harm([0, 100, 20, 8]);
  const repeatedOneIn = harm([0, 20, 5]);
  const damagedOneIn = harm([0, 100, 25]);
  const delayMax = prng.choose([20, 200, 4000, 20_000]);
  const ordered = prng.oneIn(2);
  const tiers = prng.choose([
    ['local'],
    ['local'],
    ['process_vm'],
    ['local', 'process_vm'],
    ['local', 'process_vm', 'agent'],
  ] as const);
  const agents = tiers.some((tier) => tier === 'agent');
  const open = prng.oneIn(3);
  return {
    hosts: prng.oneIn(3) ? 3 : 2,
    programsPerHost: prng.oneIn(3) ? 2 : 1,
    devicesPerHost: !open && prng.oneIn(4) ? 2 : 1,
    open,
    six,
    iwarp,
    actions: prng.between(40, 160),
    stepsMax: prng.choose([3, 10, 40]),
    operations,
    kinds,
    messageBytes,
    queueDepth,
    tiers,
    slowness: prng.choose([1, 3, 10]),
    lateReceives: prng.oneIn(3),
    pathMtu: prng.choose(Object.values(MTU)),
    timeout: agents ? AGENT_TIMEOUT : TIMEOUT,
    depth: prng.choose([1, 2, 3, 8]),
    minRnrTimer: prng.choose([12, 16, 20]),
    traits: (draw) => ({
      mtuBytes: draw.choose(MTUS),
      delayMin: 1,
      delayMax,
      ordered,
      lostOneIn,
      repeatedOneIn,
      damagedOneIn,
    }),
    sockets: {
      bufferDatagrams: prng.choose([16, 200, 10_000]),
      fullOneIn: prng.choose([0, 0, 20, 3]),
      readMicros: prng.choose([0, 0, 50, 1000]),
    },
    tapped: prng.oneIn(8),
  };
}
