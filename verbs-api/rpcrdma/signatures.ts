/** Parameters of the calls of RPC over RDMA. */
import {
  ANYTHING,
  BYTES,
  called,
  FLAG,
  fields,
  kind,
  listOf,
  MILLISECONDS,
  NUMBER,
  OBJECT,
  objectWith,
  optional,
  options,
  PORT,
  TEXT,
  takes,
  UINT32,
  wholeNumber,
} from '#contract/verbs/arguments';
import { PROVIDER, SIGNAL, SOCKET_ADDRESS, WIRE } from '#contract/verbs/signatures';
import type { ChunkLimits } from './core/chunks.ts';
import type { AnyProgram } from './core/program.ts';
import type { RequesterOptions } from './core/requester-types.ts';
import type { ResponderOptions } from './core/responder-types.ts';
import type { OpaquePadding } from './core/xdr-reader.ts';
import type { CallOptions, RpcClientOptions } from './rpc-client-types.ts';

const SOME = optional(wholeNumber(0));
const SOME_TIME = optional(MILLISECONDS);
export const HOST = called('a host name or an address, as a string', TEXT);
const LENGTH = wholeNumber(1);

const CREDENTIAL = fields<{ flavor: string }>({
  flavor: kind("'none' or 'sys'", (value) => value === 'none' || value === 'sys'),
});

const REQUESTER = options<RequesterOptions>({
  credits: optional(wholeNumber(1)),
  segmentBytesMax: optional(NUMBER),
  sendsMax: optional(wholeNumber(1)),
  connectsMax: optional(wholeNumber(1)),
  reconnectDelayMs: SOME_TIME,
  readListReplies: optional(FLAG),
});

const CLIENT = options<RpcClientOptions>({
  host: HOST,
  port: optional(PORT),
  source: optional(SOCKET_ADDRESS),
  credential: optional(CREDENTIAL),
  timeoutMs: SOME_TIME,
  inlineBytes: SOME,
  verifierMaxBytes: SOME,
  requester: optional(REQUESTER),
  padding: optional(
    options<OpaquePadding>({ alignBytes: wholeNumber(0), thresholdBytes: wholeNumber(0) }),
  ),
  wire: optional(WIRE),
});

export const RESPONDER = options<ResponderOptions>({
  credits: SOME,
  limits: optional(
    options<ChunkLimits>({ segmentsMax: wholeNumber(0), readBytesMax: wholeNumber(0) }),
  ),
  pulledBytesMax: SOME,
  stallTimeoutMs: SOME_TIME,
  readListReplies: optional(FLAG),
  doneTimeoutMs: SOME_TIME,
  undoneBytesMax: SOME,
});

const PROGRAM = fields<AnyProgram>({
  name: TEXT,
  number: UINT32,
  version: UINT32,
  procedures: called('an object of procedures', OBJECT),
});

/** Checks the arguments of calls; throws EINVAL. */
export const checkRpc = {
  connectRpc: takes('connectRpc', { provider: PROVIDER, options: CLIENT }),
  call: takes('call', {
    program: PROGRAM,
    procedure: TEXT,
    args: optional(ANYTHING),
    options: optional(
      options<CallOptions>({
        credential: optional(CREDENTIAL),
        timeoutMs: SOME_TIME,
        signal: optional(SIGNAL),
        bulkInto: optional(listOf(BYTES)),
      }),
    ),
  }),
  allocate: takes('allocate', { lengthBytes: LENGTH }),
  construct: takes('RpcService', {
    observer: optional(objectWith('an object with handlerFailed', 'handlerFailed')),
  }),
  register: takes('register', {
    program: PROGRAM,
    handlers: called('an object of functions, by procedure', OBJECT),
  }),
} as const;
