/** Client commands: a valid sequence, and hostile requests of every kind. */
import type { CommandName, CommandRequest } from '#contract/protocol/commands';
import type { IpcValue } from '#contract/protocol/ipc-value';
import type { Draws } from '../support/draws.ts';

const bytes = Uint8Array.of(1, 2, 3);
const address = { address: '127.0.0.1', port: 0 };
const capabilities = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
const region = { pd: 2, lengthBytes: 64, address: undefined, iova: undefined, key: undefined };
const parameters = {
  privateData: bytes,
  initiatorDepth: 1,
  responderResources: undefined,
  wire: { crc: true, fpduSize: 'large' },
};

/** A client's life: one command of nearly every kind, with the handles that it receives. */
export const LIFE: readonly IpcValue[] = [
  ['openDevice', { name: undefined }],
  ['allocPD', { context: 1 }],
  ['createCompChannel', { context: 1 }],
  ['createCQ', { context: 1, cqe: 16, channel: 3 }],
  ['createSRQ', { pd: 2, maxWr: 4, maxSge: 1, srqLimit: 0 }],
  ['createQP', { pd: 2, sendCQ: 4, recvCQ: 4, srq: 5, capabilities, sqSigAll: true }],
  ['allocBuffer', { lengthBytes: 4096 }],
  ['regMR', { ...region, source: { kind: 'buffer', buffer: 7, offset: 0 }, access: 7 }],
  ['regMR', { ...region, source: { kind: 'process', address: 4096n }, access: 1 }],
  ['allocMW', { pd: 2, type: 1 }],
  ['cmCreateId', {}],
  ['cmBindAddr', { id: 10, address }],
  ['cmListen', { id: 10, backlog: 1 }],
  ['cmCreateId', {}],
  ['cmResolveAddr', { id: 11, destination: address, source: address, timeoutMs: 10 }],
  ['cmConnect', { id: 11, qp: 6, ...parameters }],
  ['cmAccept', { id: 11, qp: 6, ...parameters }],
  ['cmReject', { id: 11, privateData: bytes }],
  ['cmDisconnect', { id: 11 }],
  ['modifyQP', { qp: 6, state: 6 }],
  ['queryQP', { qp: 6 }],
  ['modifySRQ', { srq: 5, srqLimit: 2 }],
  ['destroyQP', { qp: 6 }],
  ['deregMR', { mr: 8 }],
  ['freeBuffer', { buffer: 7 }],
  ['closeDevice', { context: 1 }],
];

/** Kinds of objects that requests refer to. */
export type HandleKind =
  | 'context'
  | 'pd'
  | 'buffer'
  | 'mr'
  | 'mw'
  | 'ah'
  | 'channel'
  | 'cq'
  | 'srq'
  | 'qp'
  | 'id';

/** State of a hostile client. */
export interface Knowledge {
  /** A handle of a kind, or any other number. */
  handle(kind: HandleKind): number;
  /** Ports with and without a listener. */
  port(): number;
  /** Addresses of registrable memory, and others. */
  address(): bigint;
  readonly draws: Draws;
}

/** Sizes, mostly within limits. */
function size(draws: Draws, usual: number): number {
  const draw = draws.next();
  if ((draw & 7) !== 0) return (draw >>> 3) % (usual + 1);
  return oddNumber(draws);
}

/** A number that is not a valid value. */
export function oddNumber(draws: Draws): number {
  return draws.pick([
    -1,
    0.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    -0,
    2 ** 31,
    2 ** 32,
    2 ** 53 - 1,
    2 ** 53,
    1e300,
    5 * 2 ** 30,
    draws.word(),
  ]);
}

const ADDRESSES = [
  '127.0.0.1',
  '127.0.0.1',
  '127.0.0.1',
  '0.0.0.0',
  '::1',
  '::',
  '10.255.255.1',
  'fe80::1%lo',
  '256.1.1.1',
  '',
  'x'.repeat(256),
];

function socketAddress({ draws, port }: Knowledge): { address: string; port: number } {
  return {
    address: draws.oneIn(3) ? draws.pick(ADDRESSES) : '127.0.0.1',
    port: draws.oneIn(16) ? oddNumber(draws) : port(),
  };
}

function privateData(draws: Draws): Uint8Array {
  return draws.bytes(draws.oneIn(8) ? draws.below(600) : draws.below(20));
}

const GIDS = [
  '0000:0000:0000:0000:0000:ffff:7f00:0001',
  '0000:0000:0000:0000:0000:ffff:7f00:0001',
  '0000:0000:0000:0000:0000:ffff:e000:0001',
  'ff0e:0000:0000:0000:0000:0000:0000:0001',
  'fe80:0000:0000:0000:0000:0000:0000:0001',
  '0:0:0:0:0:0:0:0',
  '::',
  '',
  ':'.repeat(64),
];

/** An address vector, mostly one that reaches the device itself. */
function addressAttributes(draws: Draws) {
  return {
    grh: {
      dgid: draws.oneIn(4) ? draws.pick(GIDS) : (GIDS[0] ?? ''),
      sgidIndex: draws.oneIn(6) ? size(draws, 9) : 1,
      ...(draws.oneIn(8) ? { flowLabel: size(draws, 0xf_ffff) } : {}),
      ...(draws.oneIn(8) ? { hopLimit: size(draws, 255) } : {}),
    },
    ...(draws.oneIn(8) ? { portNum: size(draws, 2) } : {}),
  };
}

/** Attributes of a queue pair: those of a whole step, or any. */
function pathAttributes(draws: Draws): NonNullable<CommandRequest<'modifyQP'>['attributes']> {
  const attributes = {
    accessFlags: size(draws, 31),
    pkeyIndex: draws.oneIn(8) ? size(draws, 3) : 0,
    portNum: draws.oneIn(8) ? size(draws, 3) : 1,
    qkey: size(draws, 4),
    ahAttr: addressAttributes(draws),
    pathMtu: draws.pick([1, 2, 3, 4, 5] as const),
    destQpNum: size(draws, 64),
    rqPsn: size(draws, 8),
    sqPsn: size(draws, 8),
    timeout: size(draws, 20),
    retryCnt: size(draws, 7),
    rnrRetry: size(draws, 7),
    minRnrTimer: size(draws, 31),
    maxRdAtomic: size(draws, 16),
    maxDestRdAtomic: size(draws, 16),
  };
  const step = draws.oneIn(4) ? undefined : draws.pick(STEPS_OF_PATH);
  const kept = Object.entries(attributes).filter(([name]) => {
    return step === undefined ? draws.oneIn(3) : step.includes(name);
  });
  return Object.fromEntries(kept);
}

/** Attributes that take RC, UC and UD from RESET to INIT, RTR and RTS. */
const CONNECTION = ['ahAttr', 'pathMtu', 'destQpNum', 'rqPsn'];
const STEPS_OF_PATH: readonly (readonly string[])[] = [
  ['accessFlags', 'pkeyIndex', 'portNum'],
  ['qkey', 'pkeyIndex', 'portNum'],
  [...CONNECTION, 'minRnrTimer', 'maxDestRdAtomic'],
  CONNECTION,
  ['timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic', 'sqPsn'],
  ['sqPsn'],
  [],
];

/** Parameters of connect and accept. */
export function cmParameters({ draws }: Pick<Knowledge, 'draws'>) {
  const wire = draws.oneIn(2)
    ? undefined
    : {
        mpaRevision: draws.pick([1, 2, 2] as const),
        crc: draws.oneIn(2),
        markers: draws.oneIn(3),
        peerToPeer: draws.oneIn(3),
        fpduSize: draws.pick(['emss', 'large', 512, size(draws, 9000)] as const),
      };
  const depth = (): number | undefined => (draws.oneIn(3) ? undefined : size(draws, 40));
  return {
    privateData: privateData(draws),
    initiatorDepth: depth(),
    responderResources: depth(),
    wire,
  };
}

/** Makes a request of each command, about the objects in `know`. */
export const REQUESTS: {
  readonly [N in CommandName]: (know: Knowledge) => CommandRequest<N>;
} = {
  listDevices: () => ({}),
  openDevice: ({ draws }) => ({ name: draws.pick([undefined, 'roce', 'fuzzed', '', 'x']) }),
  closeDevice: (know) => ({ context: know.handle('context') }),
  queryDevice: (know) => ({ context: know.handle('context') }),
  queryPort: (know) => ({ context: know.handle('context'), port: size(know.draws, 2) }),
  queryGidTable: (know) => ({ context: know.handle('context') }),
  allocPD: (know) => ({ context: know.handle('context') }),
  deallocPD: (know) => ({ pd: know.handle('pd') }),
  allocBuffer: ({ draws }) => ({ lengthBytes: size(draws, 20_000) }),
  freeBuffer: (know) => ({ buffer: know.handle('buffer') }),
  regMR: (know) => {
    const { draws } = know;
    const source = draws.oneIn(3)
      ? ({ kind: 'process', address: know.address() } as const)
      : ({ kind: 'buffer', buffer: know.handle('buffer'), offset: size(draws, 4096) } as const);
    const wide = (): bigint | undefined => (draws.oneIn(2) ? undefined : draws.wide());
    return {
      pd: know.handle('pd'),
      source,
      lengthBytes: size(draws, 4096),
      address: wide(),
      iova: wide(),
      access: draws.oneIn(8) ? oddNumber(draws) : draws.below(64),
      key: draws.oneIn(3) ? size(draws, 255) : undefined,
    };
  },
  deregMR: (know) => ({ mr: know.handle('mr') }),
  allocMW: (know) => ({ pd: know.handle('pd'), type: know.draws.pick([1, 2] as const) }),
  deallocMW: (know) => ({ mw: know.handle('mw') }),
  createAH: (know) => ({ pd: know.handle('pd'), attributes: addressAttributes(know.draws) }),
  destroyAH: (know) => ({ ah: know.handle('ah') }),
  createCompChannel: (know) => ({ context: know.handle('context') }),
  destroyCompChannel: (know) => ({ channel: know.handle('channel') }),
  createCQ: (know) => ({
    context: know.handle('context'),
    cqe: size(know.draws, 64),
    channel: know.draws.oneIn(2) ? know.handle('channel') : undefined,
  }),
  destroyCQ: (know) => ({ cq: know.handle('cq') }),
  createSRQ: (know) => ({
    pd: know.handle('pd'),
    maxWr: size(know.draws, 16),
    maxSge: size(know.draws, 6),
    srqLimit: size(know.draws, 8),
  }),
  modifySRQ: (know) => ({ srq: know.handle('srq'), srqLimit: size(know.draws, 16) }),
  querySRQ: (know) => ({ srq: know.handle('srq') }),
  destroySRQ: (know) => ({ srq: know.handle('srq') }),
  createQP: (know) => {
    const { draws } = know;
    return {
      pd: know.handle('pd'),
      sendCQ: know.handle('cq'),
      recvCQ: know.handle('cq'),
      srq: draws.oneIn(3) ? know.handle('srq') : undefined,
      capabilities: {
        maxSendWr: size(draws, 16),
        maxRecvWr: size(draws, 16),
        maxSendSge: size(draws, 6),
        maxRecvSge: size(draws, 6),
        maxInlineData: size(draws, 80),
      },
      sqSigAll: draws.oneIn(2),
      ...(draws.oneIn(2) ? { initialised: draws.oneIn(8) } : {}),
      ...(draws.oneIn(2) ? { type: draws.pick([2, 3, 4] as const) } : {}),
    };
  },
  modifyQP: (know) => {
    const { draws } = know;
    const state = draws.oneIn(8) ? undefined : draws.pick([0, 1, 2, 3, 4, 5, 6] as const);
    const qp = know.handle('qp');
    return draws.oneIn(3) ? { qp, state } : { qp, state, attributes: pathAttributes(draws) };
  },
  attachMcast: (know) => ({ qp: know.handle('qp'), gid: know.draws.pick(GIDS) }),
  detachMcast: (know) => ({ qp: know.handle('qp'), gid: know.draws.pick(GIDS) }),
  queryQP: (know) => ({ qp: know.handle('qp') }),
  destroyQP: (know) => ({ qp: know.handle('qp') }),
  cmCreateId: (know) => (know.draws.oneIn(4) ? { datagrams: true } : {}),
  cmDestroyId: (know) => ({ id: know.handle('id') }),
  cmBindAddr: (know) => ({ id: know.handle('id'), address: socketAddress(know) }),
  cmResolveAddr: (know) => ({
    id: know.handle('id'),
    destination: socketAddress(know),
    source: know.draws.oneIn(3) ? socketAddress(know) : undefined,
    timeoutMs: size(know.draws, 2000),
  }),
  cmResolveRoute: (know) => ({ id: know.handle('id') }),
  cmListen: (know) => ({ id: know.handle('id'), backlog: Math.trunc(size(know.draws, 8)) }),
  cmConnect: (know) => ({
    id: know.handle('id'),
    qp: know.draws.oneIn(8) ? undefined : know.handle('qp'),
    ...cmParameters(know),
  }),
  cmAccept: (know) => ({
    id: know.handle('id'),
    qp: know.handle('qp'),
    ...(know.draws.oneIn(4) ? { qkey: size(know.draws, 2 ** 33) } : {}),
    ...cmParameters(know),
  }),
  cmReject: (know) => ({ id: know.handle('id'), privateData: privateData(know.draws) }),
  cmDisconnect: (know) => ({ id: know.handle('id') }),
};

export const COMMAND_NAMES = Object.keys(REQUESTS) as CommandName[];
