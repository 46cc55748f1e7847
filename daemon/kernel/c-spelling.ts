/**
 * Spells sentences for C programs. Both personalities share the code that refuses requests, and it
 * names attributes as TypeScript does; for a C program, the C names replace them.
 */
import { FAULT_VERB_CALLS } from '#contract/protocol/faults';

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

/** What a transition of a queue pair lacks or does not permit; in C, `attr_mask` lists it. */
const IN_MASK = /^((?:needs|takes no) [\w, ]+)$/;

/** The sentence with C's names of attributes and verbs. */
export function inC(sentence: string): string {
  return sentence.replace(IN_MASK, '$1 in attr_mask').replaceAll(CAMEL_CASE, (word) => {
    if (NO_FIELDS.has(word)) return word;
    const known = C_NAMES[word] ?? VERBS[word];
    return known ?? word.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  });
}
