/** Parameters of the verbs: one table for all providers. */
import {
  BYTES,
  called,
  either,
  FLAG,
  fields,
  kind,
  LONG,
  MILLISECONDS,
  memberOf,
  NUMBER,
  type OptionalKind,
  objectWith,
  oneOf,
  optional,
  options,
  TEXT,
  takes,
  UINT32,
  wholeNumber,
} from './arguments.ts';
import type { AHAttributes, GlobalRoute } from './attributes.ts';
import { MTU, MWType, QPState, QPType } from './enums.ts';
import { isGid } from './gid.ts';
import type {
  ConnectionIdInit,
  ConnectionParameters,
  CQInit,
  CQWaitOptions,
  MROptions,
  QPInit,
  ResolveOptions,
  SocketAddress,
  SRQInit,
  WaitLimit,
  WireOptions,
} from './provider.ts';
import { eachNumber, type QPModification } from './qp-attributes.ts';

/** A count or a size, whose maximum the device checks. */
const COUNT = wholeNumber(0);
const SOME = optional(COUNT);
const GID = kind(
  'a GID, eight groups of hex digits with colons in between, as addressGid makes of an IP address',
  isGid,
);
const ACCESS = called('bits of Access', UINT32);

export const SIGNAL = objectWith('an AbortSignal', 'addEventListener', 'removeEventListener');
export const PROVIDER = objectWith('a provider', 'devices', 'open', 'createId');
export const PROTECTION_DOMAIN = objectWith('a protection domain', 'regMR', 'createQP');
export const COMPLETION_QUEUE = objectWith('a completion queue', 'poll', 'requestNotify');
export const QUEUE_PAIR = objectWith('a queue pair', 'postSend', 'postRecv');
export const SHARED_RECEIVE_QUEUE = objectWith('a shared receive queue', 'postRecv', 'modify');
const COMPLETION_CHANNEL = objectWith('a completion channel', 'nextEvent');

/** The fields of `WaitLimit`. */
export const LIMIT: Readonly<Record<keyof WaitLimit, OptionalKind>> = {
  signal: optional(SIGNAL),
  timeoutMs: optional(MILLISECONDS),
};
export const WAIT_LIMIT = options<WaitLimit>(LIMIT);

export const SOCKET_ADDRESS = fields<SocketAddress>({
  address: TEXT,
  port: wholeNumber(0, 65_535),
});

export const WIRE = options<WireOptions>({
  mpaRevision: optional(oneOf([1, 2])),
  crc: optional(FLAG),
  markers: optional(FLAG),
  peerToPeer: optional(FLAG),
  fpduSize: optional(either(oneOf(['emss', 'large']), NUMBER)),
});

const MR_OPTIONS = options<MROptions>({ iova: optional(LONG), key: SOME });

const QP_INIT = options<QPInit>({
  type: optional(memberOf(QPType, 'QPType')),
  sendCQ: COMPLETION_QUEUE,
  recvCQ: COMPLETION_QUEUE,
  srq: optional(SHARED_RECEIVE_QUEUE),
  maxSendWr: COUNT,
  maxRecvWr: COUNT,
  maxSendSge: SOME,
  maxRecvSge: SOME,
  maxInlineData: SOME,
  sqSigAll: optional(FLAG),
});

const ADDRESS_VECTOR = options<AHAttributes>({
  grh: options<GlobalRoute>({
    dgid: GID,
    sgidIndex: COUNT,
    flowLabel: SOME,
    hopLimit: SOME,
    trafficClass: SOME,
  }),
  sl: SOME,
  portNum: SOME,
});

const QP_STATE = optional(memberOf(QPState, 'QPState'));
const MODIFICATION = options<QPModification>({
  state: QP_STATE,
  curState: QP_STATE,
  ...eachNumber(SOME),
  ahAttr: optional(ADDRESS_VECTOR),
  pathMtu: optional(memberOf(MTU, 'MTU')),
});

const PARAMETERS = optional(
  options<ConnectionParameters>({
    privateData: optional(BYTES),
    initiatorDepth: SOME,
    responderResources: SOME,
    qp: optional(QUEUE_PAIR),
    qkey: SOME,
    wire: optional(WIRE),
  }),
);

/** Checks the arguments of each call; throws EINVAL. */
export const checkCall = {
  open: takes('open', { name: optional(TEXT) }),
  createId: takes('createId', {
    init: optional(options<ConnectionIdInit>({ datagrams: optional(FLAG) })),
  }),
  queryPort: takes('queryPort', { port: optional(COUNT) }),
  createCQ: takes('createCQ', {
    init: options<CQInit>({ cqe: COUNT, channel: optional(COMPLETION_CHANNEL) }),
  }),
  regMR: takes('regMR', { buffer: BYTES, access: ACCESS, options: optional(MR_OPTIONS) }),
  allocMR: takes('allocMR', {
    lengthBytes: wholeNumber(1),
    access: ACCESS,
    options: optional(MR_OPTIONS),
  }),
  allocMW: takes('allocMW', { type: memberOf(MWType, 'MWType') }),
  createSRQ: takes('createSRQ', {
    init: options<SRQInit>({ maxWr: COUNT, maxSge: SOME, srqLimit: SOME }),
  }),
  createAH: takes('createAH', { attributes: ADDRESS_VECTOR }),
  createQP: takes('createQP', { init: QP_INIT }),
  modifySRQ: takes('modify', { attributes: options<{ srqLimit: number }>({ srqLimit: COUNT }) }),
  modifyQP: takes('modify', { attributes: MODIFICATION }),
  attachMcast: takes('attachMcast', { gid: GID }),
  detachMcast: takes('detachMcast', { gid: GID }),
  poll: takes('poll', { max: wholeNumber(0) }),
  requestNotify: takes('requestNotify', { solicitedOnly: optional(FLAG) }),
  wait: takes('wait', {
    options: optional(options<CQWaitOptions>({ ...LIMIT, max: optional(wholeNumber(1)) })),
  }),
  nextEvent: takes('nextEvent', { options: optional(WAIT_LIMIT) }),
  bindAddr: takes('bindAddr', { address: SOCKET_ADDRESS }),
  resolveAddr: takes('resolveAddr', {
    destination: SOCKET_ADDRESS,
    options: optional(
      options<ResolveOptions>({
        source: optional(SOCKET_ADDRESS),
        timeoutMs: optional(MILLISECONDS),
      }),
    ),
  }),
  resolveRoute: takes('resolveRoute', { timeoutMs: optional(MILLISECONDS) }),
  createQPOfId: takes('createQP', { pd: PROTECTION_DOMAIN, init: QP_INIT }),
  listen: takes('listen', { backlog: optional(COUNT) }),
  connect: takes('connect', { parameters: PARAMETERS }),
  accept: takes('accept', { parameters: PARAMETERS }),
  reject: takes('reject', { privateData: optional(BYTES) }),
} as const;
