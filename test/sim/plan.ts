/** The plan of a run: which operations a seed turns on, and its sizes, speeds and failures. */
import type { WireDefaults } from '#daemon/iwarp/cm/cm-types';
import type { Prng } from '../support/prng.ts';
import type { WireTraits } from '../support/sim-link.ts';
import type { MessageTraits } from './sctp/sim-association.ts';
import type { Tier } from './sim-memory.ts';

/** Operations of a run, by name. */
export const OPERATIONS = [
  'listen',
  'connect',
  'answer',
  'post',
  'postLate',
  'receive',
  'poll',
  'leave',
  'disconnect',
  'destroyId',
  'destroyQp',
  'modify',
  'reuse',
  'kill',
  'bind',
  'stale',
  'lose',
  'deregister',
  'fault',
  'heal',
  'link',
  'hostile',
  'reset',
  'query',
] as const;
export type OperationName = (typeof OPERATIONS)[number];

/** Work requests by kind. */
export const KINDS = [
  'send',
  'sendInvalidate',
  'write',
  'writeImmediate',
  'immediate',
  'read',
  'fetchAdd',
  'compareSwap',
  'badKey',
  'tooLong',
  'unexpected',
  'badLocal',
] as const;
export type WorkKind = (typeof KINDS)[number];

/** Carriers of the connections. With `sctp`, a host may have a device over TCP as well. */
export const CARRIERS = ['tcp', 'sctp'] as const;
export type Carrier = (typeof CARRIERS)[number];

/** See the module's comment. */
export interface Plan {
  readonly hosts: number;
  readonly clientsPerHost: number;
  readonly devicesPerHost: number;
  readonly actions: number;
  /** Maximum steps of time between two operations. */
  readonly stepsMax: number;
  readonly operations: Readonly<Record<OperationName, number>>;
  readonly kinds: Readonly<Record<WorkKind, number>>;
  /** Size of a receive, hence of the longest message. */
  readonly messageBytes: number;
  readonly targetBytes: number;
  readonly queueDepth: number;
  readonly tiers: readonly Tier[];
  /** One poll in this many takes every completion. */
  readonly slowness: number;
  readonly wire: Partial<WireDefaults>;
  readonly traits: (prng: Prng) => WireTraits;
  /** The carrier of each device of a host. */
  readonly carriers: readonly Carrier[];
  /** Draws the traits of an association. */
  readonly messageTraits: (prng: Prng) => MessageTraits;
  readonly tapped: boolean;
  /** Connections within a host go through memory. */
  readonly memoryLinks: boolean;
  /** Agents of a host's programs copy messages from this length on straight into memory; undefined if they do not. */
  readonly copiesFromBytes: number | undefined;
  /** Share of an address in a turn; undefined for the product's default, which no run reaches. */
  readonly turnShareBytes: number | undefined;
}

/** In one run of this many, messages exceed what one turn of the event loop sends. */
const BIG_ONE_IN = 16;
/** Most bytes of one queue's messages in every other run: allocating memory dominates a run's cost. */
const SMALL_QUEUE_BYTES = 12_000;

/** Buffer of an SCTP transport for one association, as in `daemon/host/sctp`. */
const SCTP_BUFFER_MAX_BYTES = 2_097_152;

/** Weight of each operation. A seed turns some off and scales the others by 0.5 to 2. */
const USUAL: Readonly<Record<OperationName, number>> = {
  listen: 4,
  connect: 14,
  answer: 18,
  post: 70,
  postLate: 10,
  receive: 14,
  poll: 40,
  leave: 6,
  disconnect: 6,
  destroyId: 2,
  destroyQp: 4,
  modify: 2,
  reuse: 10,
  kill: 1,
  bind: 12,
  stale: 20,
  lose: 3,
  deregister: 1,
  fault: 2,
  heal: 3,
  link: 3,
  hostile: 6,
  reset: 1,
  query: 2,
};

/** Always on: a run without these would do nothing. */
const ALWAYS: readonly OperationName[] = ['listen', 'connect', 'answer', 'post', 'poll', 'reuse'];

/** Draws the plan of a run. */
export function drawPlan(prng: Prng, carrier: Carrier): Plan {
  const big = prng.oneIn(BIG_ONE_IN);
  const operations = { ...USUAL };
  for (const name of OPERATIONS) {
    if (!ALWAYS.includes(name) && prng.oneIn(2)) operations[name] = 0;
    else operations[name] = Math.ceil((operations[name] * prng.between(2, 8)) / 4);
  }
  // Neither has an effect without the other.
  if (big) operations.leave = 3 * USUAL.leave;
  if (operations.bind > 0) operations.stale = USUAL.stale;
  const on = (usual: number): number => (prng.oneIn(3) ? 0 : prng.between(1, usual));
  const misuse = (): number => (prng.oneIn(4) ? 1 : 0);
  const kinds: Record<WorkKind, number> = {
    send: prng.between(4, 12),
    sendInvalidate: on(3),
    write: on(10),
    writeImmediate: on(4),
    immediate: on(4),
    read: on(8),
    fetchAdd: on(3),
    compareSwap: on(3),
    badKey: misuse(),
    tooLong: misuse(),
    unexpected: misuse(),
    badLocal: misuse(),
  };
  // Many messages of one FPDU each, or fewer messages of several FPDUs.
  const many = big && prng.oneIn(2);
  const queueDepth = big ? (many ? 32 : 16) : prng.choose([2, 4, 8, 16]);
  const messageBytes = big
    ? prng.between(40_000, many ? 60_000 : 280_000)
    : prng.choose([64, 300, Math.floor(SMALL_QUEUE_BYTES / queueDepth)]);
  const latency = prng.choose([20, 200, 2000]);
  const bufferBytes = big
    ? prng.choose([65_536, 4_000_000, 16_000_000])
    : prng.choose([300, 2000, 16_000, 4_000_000]);
  const deliverMax = big ? 262_144 : prng.choose([50, 700, 3000, 262_144]);
  const emssBytes = prng.oneIn(3) ? prng.between(256, 65_483) : 1448;
  const hosts = prng.oneIn(4) ? 3 : 2;
  const clientsPerHost = prng.oneIn(3) ? 2 : 1;
  const devicesPerHost = prng.oneIn(4) ? 2 : 1;
  const actions = big ? prng.between(30, 60) : prng.between(60, 220);
  // Not drawn separately, so that seeds keep their meaning.
  const copies = carrier === 'tcp' && actions % 4 === 0;
  const plan = {
    hosts,
    clientsPerHost,
    devicesPerHost,
    actions,
    stepsMax: prng.choose([2, 6, 20]),
    operations,
    kinds,
    messageBytes,
    targetBytes: big ? 1_000_000 : prng.choose([1000, 8000]),
    queueDepth,
    tiers: drawTiers(prng, copies),
    slowness: prng.choose([1, 3, 10]),
    wire: {
      mpaRevision: prng.oneIn(6) ? (1 as const) : (2 as const),
      markersRequested: prng.oneIn(4),
      peerToPeer: !prng.oneIn(5),
      crcRequested: !prng.oneIn(6),
      rtrKinds: { send: false, write: true, read: prng.oneIn(2) },
      fpduSize: { kind: many || prng.oneIn(3) ? ('large' as const) : ('emss' as const) },
      segmentAligned: !prng.oneIn(4),
    },
    traits: (draw: Prng) => ({
      delayMin: 1,
      delayMax: draw.between(2, latency),
      bufferBytes,
      deliverMax,
      emssBytes,
    }),
    tapped: prng.oneIn(8),
    // These are not drawn separately, so that seeds keep their meaning.
    memoryLinks: actions % 2 === 0,
    copiesFromBytes: copies ? Math.min(512, messageBytes >> 1) : undefined,
    turnShareBytes: latency === 20 ? messageBytes + 4096 : undefined,
  };
  // Seeds keep their meaning over TCP.
  if (carrier === 'tcp') {
    const carriers = Array.from({ length: plan.devicesPerHost }, () => carrier);
    return { ...plan, carriers, messageTraits: noAssociation };
  }
  return { ...plan, ...drawAssociations(prng, plan.devicesPerHost, { latency, bufferBytes }) };
}

/** Agents copy only what they reach by system calls. */
function drawTiers(prng: Prng, copies: boolean): readonly Tier[] {
  const tiers = prng.choose([
    ['local'],
    ['process_vm'],
    ['agent'],
    ['local', 'process_vm', 'agent'],
    ['local', 'process_vm'],
  ] as const);
  return copies ? ['process_vm'] : tiers;
}

function noAssociation(): MessageTraits {
  throw new Error('a run over TCP has no associations');
}

function drawAssociations(
  prng: Prng,
  devices: number,
  { latency, bufferBytes }: { readonly latency: number; readonly bufferBytes: number },
): Pick<Plan, 'carriers' | 'messageTraits'> {
  const second = prng.oneIn(2) ? 'tcp' : 'sctp';
  const messageMaxBytes = prng.choose([516, 1432, 1432, 8972, 65_483]);
  const traits = {
    delayMin: 1,
    bufferBytes: Math.min(bufferBytes, SCTP_BUFFER_MAX_BYTES),
    messageMaxBytes,
  };
  return {
    carriers: devices === 1 ? ['sctp'] : ['sctp', second],
    messageTraits: (draw) => ({
      ...traits,
      delayMax: draw.between(2, latency),
      windowBytes: draw.choose([messageMaxBytes, 65_536, SCTP_BUFFER_MAX_BYTES]),
      eventsInLine: draw.oneIn(2),
    }),
  };
}

/** Draws a key of `weights`, which are not all 0. */
export function drawWeighted<K extends string>(
  prng: Prng,
  names: readonly K[],
  weights: Readonly<Record<K, number>>,
): K {
  let sum = 0;
  for (const name of names) sum += weights[name];
  let draw = prng.below(sum);
  for (const name of names) {
    if (draw < weights[name]) return name;
    draw -= weights[name];
  }
  throw new RangeError('the weights are all 0');
}
