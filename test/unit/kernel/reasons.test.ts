import { afterEach, describe, expect, it } from 'vitest';
import type { Refusal } from '#contract/protocol/refusals';
import { inC } from '#daemon/kernel/command-boundary';
import { ReasonLines } from '#daemon/kernel/reason-lines';
import { emitReply, ReplyFlag } from '#daemon/kernel/shim-protocol';
import { commands } from '#test/support/kernel-commands';
import { UverbsRig } from '#test/support/uverbs-rig';

function refusal(fields: Partial<Refusal> = {}): Refusal {
  return {
    number: 1,
    at: '2026-01-01T00:00:00.000Z',
    pid: 7,
    uid: 1000,
    program: 'pp',
    api: 'verbs',
    verb: 'ibv_modify_qp',
    code: 'EINVAL',
    sentence: 'why',
    times: 1,
    ...fields,
  };
}

describe('sentences for C programs', () => {
  it.each([
    ['needs accessFlags, pkeyIndex', 'needs qp_access_flags, pkey_index in attr_mask'],
    ['sgidIndex 7 is an empty entry', 'sgid_index 7 is an empty entry'],
    ['regMR failed by injected fault 1', 'ibv_reg_mr failed by injected fault 1'],
    ['cmResolveAddr failed by injected fault 2', 'rdma_resolve_addr failed by injected fault 2'],
    ['an iWARP device has no such thing', 'an iWARP device has no such thing'],
    ['maxRdAtomic must be 0 to 128, not 200', 'max_rd_atomic must be 0 to 128, not 200'],
    ['Access.remoteWrite needs Access.localWrite', 'Access.remoteWrite needs Access.localWrite'],
  ])('%s', (ours, theirs) => {
    expect(inC(ours)).toBe(theirs);
  });
});

describe('lines for standard error', () => {
  it('wait for the next reply of their process, if it asked', () => {
    const lines = new ReasonLines();
    lines.note(refusal({ sentence: 'unasked' }));
    lines.join(7);
    lines.note(refusal());
    lines.note(refusal({ pid: 8 }));
    expect(lines.take(7)).toEqual(['ibv_modify_qp: EINVAL: why']);
    expect(lines.take(7)).toEqual([]);
    expect(lines.take(8)).toEqual([]);
  });

  it('do not repeat themselves', () => {
    const lines = new ReasonLines();
    lines.join(7);
    lines.note(refusal());
    lines.note(refusal({ times: 2 }));
    expect(lines.take(7)).toHaveLength(1);
  });

  it('are bounded, and say how many are missing', () => {
    const lines = new ReasonLines();
    lines.join(7);
    for (let count = 0; count < 100; count += 1) lines.note(refusal({ sentence: `s ${count}` }));
    const taken = [1, 2, 3, 4, 5].flatMap(() => lines.take(7));
    expect(taken).toHaveLength(65);
    expect(taken.at(-1)).toBe('36 more; `iwarpd explain --pid 7` shows the last');
  });

  it('end with the last connection of the process', () => {
    const lines = new ReasonLines();
    lines.join(7);
    lines.join(7);
    lines.note(refusal());
    lines.leave(7);
    expect(lines.take(7)).toHaveLength(1);
    lines.leave(7);
    lines.note(refusal());
    expect(lines.take(7)).toEqual([]);
  });

  it('are at the end of a reply, after everything else', () => {
    const bytes = emitReply(3, { status: -22, purged: [5], reasons: ['one', 'two'] });
    const fields = new DataView(bytes.buffer);
    expect(fields.getUint32(12, true)).toBe(ReplyFlag.purged | ReplyFlag.reasons);
    expect(fields.getUint32(32, true)).toBe(7);
    expect(new TextDecoder().decode(bytes.subarray(36))).toBe('one\ntwo');
    expect(emitReply(3, { status: -22 })).toHaveLength(24);
  });
});

describe('a refused command of uverbs', () => {
  let rig: UverbsRig | undefined;

  afterEach(async () => {
    await rig?.close();
    rig = undefined;
  });

  it('is recorded with call, device and reason', () => {
    rig = new UverbsRig();
    expect(rig.write(commands.deallocPD(77)).status).toBeLessThan(0);
    expect(rig.refusals.list({}, undefined).refusals).toMatchObject([
      {
        api: 'verbs',
        verb: 'ibv_dealloc_pd',
        code: 'EINVAL',
        sentence: 'the device file has no context: ibv_open_device makes it (GET_CONTEXT)',
        device: rig.host.devices[0]?.name,
        uid: process.getuid?.(),
      },
    ]);
  });
});
