/** Completions out of the library's structs, a batch for each call. */
import type { WC } from '../../verbs-api/contract/completion.ts';
import { type WCOpcode, WCStatus } from '../../verbs-api/contract/enums.ts';
import type { HotVerbs } from './device.ts';
import { callFailure } from './errors.ts';
import { fieldOf, sizeOf } from './layouts.ts';
import { Block } from './struct-block.ts';

/** Completions that one call takes at most. */
const BATCH = 64;
const WORDS = sizeOf('ibv_wc') / 4;
const LONGS = sizeOf('ibv_wc') / 8;
const WR_ID = fieldOf('ibv_wc', 'wr_id')[0] / 8;
const STATUS = fieldOf('ibv_wc', 'status')[0] / 4;
const OPCODE = fieldOf('ibv_wc', 'opcode')[0] / 4;
const BYTE_LEN = fieldOf('ibv_wc', 'byte_len')[0] / 4;
const IMM_DATA = fieldOf('ibv_wc', 'imm_data')[0] / 4;
const QP_NUM = fieldOf('ibv_wc', 'qp_num')[0] / 4;
const WC_FLAGS = fieldOf('ibv_wc', 'wc_flags')[0] / 4;
const WITH_INV = 8;

/** One for all queues: a call fills it and everything is read before the next call. */
const block = new Block(BATCH * sizeOf('ibv_wc'));
const words = new Uint32Array(block.octets.buffer);
const longs = new BigUint64Array(block.octets.buffer);

/** Polls, and makes objects of what came. */
export const CompletionBatch = {
  /** Up to `max` completions of the queue at `cq`. */
  take(hot: HotVerbs, cq: number, max: number): WC[] {
    const completions: WC[] = [];
    while (completions.length < max) {
      const wanted = Math.min(max - completions.length, BATCH);
      const count = hot.pollCQ(cq, wanted, block.address);
      if (count < 0) throw callFailure('ibv_poll_cq', 'a completion queue', count);
      for (let index = 0; index < count; index += 1) completions.push(completionAt(index));
      if (count < wanted) break;
    }
    return completions;
  },
} as const;

function completionAt(index: number): WC {
  const word = index * WORDS;
  const status = (words[word + STATUS] ?? 0) as WCStatus;
  const wcFlags = words[word + WC_FLAGS] ?? 0;
  return {
    wrId: longs[index * LONGS + WR_ID] ?? 0n,
    status,
    opcode: (words[word + OPCODE] ?? 0) as WCOpcode,
    byteLen: status === WCStatus.success ? (words[word + BYTE_LEN] ?? 0) : 0,
    qpNum: words[word + QP_NUM] ?? 0,
    wcFlags,
    immData: 0n,
    invalidatedRkey: (wcFlags & WITH_INV) === 0 ? 0 : (words[word + IMM_DATA] ?? 0),
  };
}
