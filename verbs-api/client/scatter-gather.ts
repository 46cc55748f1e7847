/** Scatter/gather lists as queue elements hold them. */
import { SGE_BYTES } from '#contract/protocol/queue-layout';
import type { SGE } from '#contract/verbs/work-request';
import { isUint32, putLong, type RingMemory } from './ring-memory.ts';

const SGE_WORDS = SGE_BYTES >>> 2;

/** Writes `list` from word index `word` on. False when an entry is malformed. */
export function putScatterGather(memory: RingMemory, word: number, list: readonly SGE[]): boolean {
  let at = word;
  // Indexed: an iterator per posted request would be the most expensive part of posting.
  for (let index = 0; index < list.length; index += 1) {
    const sge = list[index];
    if (sge === undefined || !isUint32(sge.length) || !isUint32(sge.lkey)) return false;
    if (!putLong(memory, at, sge.addr)) return false;
    memory.words[at + 2] = sge.length;
    memory.words[at + 3] = sge.lkey;
    at += SGE_WORDS;
  }
  return true;
}
