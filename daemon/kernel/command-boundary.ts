/** The only place where a refusal becomes an errno for C, and is recorded with its reason. */
import { isVerbsError } from '#contract/verbs/errors';
import type { Refusals } from '#daemon/refusals/refusals';
import { FAULT_VERB_CALLS } from '../contract/protocol/faults.ts';
import {
  DONE,
  type KernelCaller,
  type KernelFile,
  type KernelReply,
  refusal,
} from './kernel-file.ts';
import type { ShimRequest } from './shim-protocol.ts';

/**
 * Executes a request. A `VerbsError` becomes the reply; any other error is a broken invariant and
 * stops the daemon.
 */
export function executeOn(
  file: KernelFile,
  request: ShimRequest,
  caller: KernelCaller,
  refusals: Refusals,
): KernelReply {
  let reply: KernelReply;
  try {
    reply = file.execute(request, caller);
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    reply = refusal(error.code, error.message);
  }
  // Doorbells end here: reading a field of replies of every shape is slow.
  if (reply === DONE) return reply;
  const { refused } = reply;
  // EAGAIN refuses nothing: no event is pending.
  if (refused === undefined || refused.code === 'EAGAIN') return reply;
  const { pid, uid } = caller.credentials;
  const { program } = file.client;
  const { api, verb, step, device, objects } = file.describe(request);
  refusals.record({
    pid,
    uid,
    program,
    api,
    verb,
    ...(step === undefined ? {} : { step }),
    code: refused.code,
    sentence: inC(withoutStep(refused.sentence, step)),
    ...(device === undefined ? {} : { device }),
    ...(objects === undefined ? {} : { objects }),
  });
  return reply;
}

/** Removes a step at the start of a sentence that the errno's text repeats. */
function withoutStep(sentence: string, step: string | undefined): string {
  const said = step !== undefined && sentence.startsWith(`${step} `);
  return said ? sentence.slice(step.length + 1) : sentence;
}

/** Attributes whose C name is not the same words with underscores. */
const C_NAMES: Readonly<Record<string, string>> = {
  accessFlags: 'qp_access_flags',
  ahAttr: 'ah_attr',
  cqEntries: 'cqe',
  hcaVa: 'hca_va',
  iova: 'hca_va',
  lengthBytes: 'length',
  maxRdAtomic: 'max_rd_atomic',
  privateData: 'private_data',
  privateDataLength: 'private_data_len',
  sgList: 'sg_list',
  state: 'qp_state',
  initiatorDepth: 'initiator_depth',
};

const VERBS: Readonly<Partial<Record<string, string>>> = FAULT_VERB_CALLS;

/** A camelCase word with no letter, digit or dot next to it. */
const CAMEL_CASE = /(?<![\w.])[a-z]+(?:[A-Z][a-z0-9]*)+(?![\w])/g;

/** Camel case in messages that names no attribute. */
const NO_FIELDS: ReadonlySet<string> = new Set(['iWARP', 'allowOtherUsers']);

/** The attributes that a transition lacks or does not permit; in C, `attr_mask` lists them. */
const IN_MASK = /^((?:needs|takes no) [\w, ]+)$/;

/**
 * The sentence with C's names of attributes and verbs: both personalities share the code that refuses
 * requests, and it names attributes as TypeScript does.
 */
export function inC(sentence: string): string {
  return sentence.replace(IN_MASK, '$1 in attr_mask').replaceAll(CAMEL_CASE, (word) => {
    if (NO_FIELDS.has(word)) return word;
    const known = C_NAMES[word] ?? VERBS[word];
    return known ?? word.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  });
}
