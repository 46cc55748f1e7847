import { describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { type CompletedWork, type PostedWork, WorkQueue } from '#contract/protocol/work-records';
import { completedText, postedText } from '#daemon/capture/work-text';

const WORK: PostedWork = {
  qpn: 1,
  queue: WorkQueue.send,
  opcode: SQOpcode.send,
  flags: 0,
  wrIdHi: 0,
  wrIdLo: 7,
  lengthBytes: 64,
  stag: 0x11223344,
  addressHi: 0x7f00,
  addressLo: 0x1000_0000,
};
const DONE: CompletedWork = {
  qpn: 1,
  opcode: SQOpcode.receive,
  status: CQEStatus.success,
  flags: 0,
  wrIdHi: 0,
  wrIdLo: 7,
  lengthBytes: 64,
  immediateHi: 0x01020304,
  immediateLo: 0xcafe0001,
};
const PLACE = 'STag 0x11223344 TO 0x00007f0010000000';

describe('a work request as text', () => {
  it.each([
    [{}, 'WQE SEND wr_id 0x7, 64 bytes'],
    [{ wrIdHi: 0x1f, wrIdLo: 5 }, 'WQE SEND wr_id 0x1f00000005, 64 bytes'],
    [
      { flags: QueueFlag.signalled | QueueFlag.solicited | QueueFlag.readFence | QueueFlag.inline },
      'WQE SEND wr_id 0x7, 64 bytes, inline, fence, solicited, signaled',
    ],
    [
      { opcode: SQOpcode.sendRemoteInv },
      'WQE SEND_WITH_INV wr_id 0x7, 64 bytes, invalidates 0x11223344',
    ],
    [{ opcode: SQOpcode.write }, `WQE RDMA_WRITE wr_id 0x7, 64 bytes to ${PLACE}`],
    [{ opcode: SQOpcode.writeWithImm }, `WQE RDMA_WRITE_WITH_IMM wr_id 0x7, 64 bytes to ${PLACE}`],
    [{ opcode: SQOpcode.read }, `WQE RDMA_READ wr_id 0x7, 64 bytes from ${PLACE}`],
    [
      { opcode: SQOpcode.compAndSwap, lengthBytes: 8 },
      `WQE ATOMIC_CMP_AND_SWP wr_id 0x7, 8 bytes at ${PLACE}`,
    ],
    [
      { opcode: SQOpcode.bindMW },
      'WQE BIND_MW wr_id 0x7, 64 bytes at 0x00007f0010000000 as STag 0x11223344',
    ],
    [{ opcode: SQOpcode.localInv }, 'WQE LOCAL_INV wr_id 0x7, invalidates 0x11223344'],
    [{ opcode: 77 }, 'WQE OPCODE_77 wr_id 0x7, 64 bytes'],
    [
      { queue: WorkQueue.receive, opcode: SQOpcode.receive },
      'WQE RECV wr_id 0x7, room for 64 bytes',
    ],
    [
      { queue: WorkQueue.sharedReceive, opcode: SQOpcode.receive },
      'WQE RECV wr_id 0x7, room for 64 bytes, shared',
    ],
  ])('%j', (fields, text) => {
    expect(postedText({ ...WORK, ...fields })).toBe(text);
  });
});

describe('a completion as text', () => {
  it.each([
    [{}, 'CQE RECV wr_id 0x7, IBV_WC_SUCCESS, 64 bytes'],
    [
      { status: CQEStatus.remAccessErr, lengthBytes: 0 },
      'CQE RECV wr_id 0x7, IBV_WC_REM_ACCESS_ERR, 0 bytes',
    ],
    [
      { flags: QueueFlag.solicited | QueueFlag.remoteInvalidate },
      'CQE RECV wr_id 0x7, IBV_WC_SUCCESS, 64 bytes, solicited, invalidated 0xcafe0001',
    ],
    [
      { flags: QueueFlag.immediate },
      'CQE RECV wr_id 0x7, IBV_WC_SUCCESS, 64 bytes, value 0x01020304cafe0001',
    ],
  ])('%j', (fields, text) => {
    expect(completedText({ ...DONE, ...fields })).toBe(text);
  });
});
