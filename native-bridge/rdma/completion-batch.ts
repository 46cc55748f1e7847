/** Reads completions from the library's structs, one batch per call. */
import { Completion, type WC } from '#contract/verbs/completion';
import { type WCOpcode, WCStatus } from '#contract/verbs/enums';
import { callFailure } from './errors.ts';
import { fieldOf, sizeOf } from './layouts.ts';
import type { HotVerbs } from './open-device.ts';
import { Block } from './struct-block.ts';

/** Most completions per call. */
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

/** Shared by all queues: a call fills it, and it is read completely before the next call. */
const block = new Block(BATCH * sizeOf('ibv_wc'));
const words = new Uint32Array(block.bytes.buffer);
const longs = new BigUint64Array(block.bytes.buffer);

/** Polls, and converts completions to objects. */
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
  const wc = new Completion();
  wc.wrId = longs[index * LONGS + WR_ID] ?? 0n;
  wc.status = status;
  wc.opcode = (words[word + OPCODE] ?? 0) as WCOpcode;
  if (status === WCStatus.success) wc.byteLen = words[word + BYTE_LEN] ?? 0;
  wc.qpNum = words[word + QP_NUM] ?? 0;
  wc.wcFlags = wcFlags;
  if ((wcFlags & WITH_INV) !== 0) wc.invalidatedRkey = words[word + IMM_DATA] ?? 0;
  return wc;
}
