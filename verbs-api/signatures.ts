/**
 * Shared parameters of connections, listeners and datagrams; those of the verbs are in
 * daemon/contract/verbs/signatures.ts.
 */
import {
  BYTES,
  either,
  FLAG,
  FUNCTION,
  fields,
  type Kind,
  kind,
  LONG,
  MILLISECONDS,
  optional,
  options,
  PORT,
  TEXT,
  UINT32,
  wholeNumber,
} from '#contract/verbs/arguments';
import type { RemoteMemory } from '#contract/verbs/remote-memory';
import {
  COMPLETION_QUEUE,
  LIMIT,
  PROTECTION_DOMAIN,
  SHARED_RECEIVE_QUEUE,
  SOCKET_ADDRESS,
} from '#contract/verbs/signatures';
import type { SGE } from '#contract/verbs/work-request';
import { MESSAGE_MAX_BYTES, WINDOW_MAX } from './message-framing.ts';
import type { MessageOptions } from './message-window.ts';

const SOME = optional(wholeNumber(0));
export const HOST = kind(
  'a host name or an address, as a string',
  (value) => typeof value === 'string' && value !== '',
);

const MESSAGES = options<MessageOptions>({
  bytes: optional(wholeNumber(0, MESSAGE_MAX_BYTES)),
  window: optional(wholeNumber(1, WINDOW_MAX)),
  credits: optional(FLAG),
});

export const DATAGRAM_FIELDS = {
  ...LIMIT,
  pd: optional(PROTECTION_DOMAIN),
  cq: optional(COMPLETION_QUEUE),
  srq: optional(SHARED_RECEIVE_QUEUE),
  maxSendWr: SOME,
  maxRecvWr: SOME,
  maxSendSge: SOME,
  maxRecvSge: SOME,
  maxInlineData: SOME,
  sqSigAll: optional(FLAG),
  prepare: optional(FUNCTION),
} as const;

export const ENDPOINT_FIELDS = {
  ...DATAGRAM_FIELDS,
  messages: optional(either(FLAG, MESSAGES)),
  privateData: optional(BYTES),
  initiatorDepth: SOME,
  responderResources: SOME,
} as const;

/** Fields that name a peer. */
export const PEER_FIELDS = {
  host: HOST,
  port: PORT,
  source: optional(SOCKET_ADDRESS),
  resolveTimeoutMs: optional(MILLISECONDS),
} as const;

/** Parameters of a rejection. */
export const REASON = { privateData: optional(BYTES) } as const;

export const LISTEN_FIELDS = {
  ...LIMIT,
  host: optional(HOST),
  port: optional(PORT),
  backlog: SOME,
} as const;

export const PAYLOAD = kind(
  'a string, a Uint8Array or an SGE (see MR.sge)',
  (value) => typeof value === 'string' || value instanceof Uint8Array || isSge(value),
);
export const BYTES_OR_SGE = kind(
  'a Uint8Array or an SGE (see MR.sge)',
  (value) => value instanceof Uint8Array || isSge(value),
);
export const TARGET = kind(
  'a number of bytes, a Uint8Array or an SGE (see MR.sge)',
  (value) => isCount(value) || value instanceof Uint8Array || isSge(value),
);
/** Memory that the peer exported. */
export const REMOTE: Kind = fields<RemoteMemory>({
  addr: TEXT,
  rkey: UINT32,
  length: wholeNumber(0),
});

const SGE_FIELDS = fields<SGE>({
  addr: LONG,
  length: UINT32,
  lkey: UINT32,
});

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function isSge(value: unknown): boolean {
  return SGE_FIELDS.refusal(value, 'SGE') === undefined;
}
