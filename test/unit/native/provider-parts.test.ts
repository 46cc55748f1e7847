import { describe, expect, it } from 'vitest';
import { CMEventType, SendFlag, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { SendFields } from '#contract/verbs/work-request';
import type { NativeCMEvent } from '#native-bridge/rdma/cm-id';
import { NativeError } from '#native-bridge/rdma/errors';
import type { NativeQP } from '#native-bridge/rdma/queue-pair';
import { Presence } from '#verbs-api/client/lifetime';
import { nextTurn, shareIsSpent } from '#verbs-api/native/completion-queue';
import { errorOf, textOf } from '#verbs-api/native/connection-event';
import { HeldSends } from '#verbs-api/native/held-sends';
import { OwnedObject } from '#verbs-api/native/owned-object';
import { flushedReceive, flushedSend } from '#verbs-api/native/queue-pair';

describe('sends that wait for a connection', () => {
  const ROOM = 4;
  /** The queue pair of `HeldSends`; requests of opcode 99 are malformed. */
  const queuePair = {
    subject: 'the queue pair',
    capabilities: { maxSendWr: ROOM },
    checkSend(requests: readonly SendFields[]): NativeError | undefined {
      const bad = requests.findIndex(({ opcode }) => (opcode as number) === 99);
      return bad < 0 ? undefined : new NativeError('refused', 'EINVAL', 'malformed', bad);
    },
  } as unknown as NativeQP;
  const send = (wrId: number): SendFields => ({ wrId, opcode: WROpcode.send });

  it('come out unchanged, once, whatever happens to the caller’s objects', () => {
    const held = new HeldSends();
    const inlineData = Uint8Array.of(1);
    const sgList = [{ addr: 1, length: 2, lkey: 3 }];
    held.add(queuePair, [
      { ...send(1), flags: SendFlag.inline, inlineData },
      { ...send(2), sgList },
    ]);
    inlineData.fill(9);
    sgList.length = 0;
    expect(held.take()).toEqual([
      { ...send(1), flags: SendFlag.inline, inlineData: Uint8Array.of(1) },
      { ...send(2), sgList: [{ addr: 1, length: 2, lkey: 3 }] },
    ]);
    expect(held.take()).toEqual([]);
  });

  it('are kept up to the first that is malformed or has no room', () => {
    const held = new HeldSends();
    const malformed = { ...send(2), opcode: 99 as WROpcode };
    expect(() => held.add(queuePair, [send(1), malformed, send(3)])).toThrow(
      expect.objectContaining({ code: 'EINVAL', badIndex: 1 }),
    );
    expect(() => held.add(queuePair, [4, 5, 6, 7].map(send))).toThrow(
      expect.objectContaining({ code: 'ENOMEM', badIndex: 3 }),
    );
    expect(held.take().map(({ wrId }) => wrId)).toEqual([1, 4, 5, 6]);
  });
});

describe('completions that the device does not generate', () => {
  it('are flushes with the opcode of their request', () => {
    expect(flushedSend({ wrId: -1, opcode: WROpcode.rdmaRead }, 7)).toEqual({
      wrId: 2n ** 64n - 1n,
      status: WCStatus.wrFlushErr,
      opcode: WCOpcode.rdmaRead,
      byteLen: 0,
      qpNum: 7,
      wcFlags: 0,
      immData: 0n,
      invalidatedRkey: 0,
      srcQp: 0,
    });
    expect(flushedReceive({ sgList: [] }, 7)).toMatchObject({ wrId: 0n, opcode: WCOpcode.recv });
  });
});

describe('events of rdma_cm', () => {
  const event = (type: number, status: number) => ({ type, status }) as NativeCMEvent;

  it('report an errno of the contract, or success', () => {
    expect(errorOf(event(CMEventType.established, 0))).toBeUndefined();
    expect(errorOf(event(CMEventType.unreachable, -110))).toBe('ETIMEDOUT');
    expect(errorOf(event(CMEventType.rejected, 28))).toBe('ECONNREFUSED');
    expect(textOf(event(CMEventType.unreachable, -110))).toBe(
      'the peer cannot be reached (ETIMEDOUT)',
    );
  });
});

describe('objects of a native provider', () => {
  class Sample extends OwnedObject {
    calls = 0;
    gone = 0;
    refusal: Error | undefined;

    protected override destroy(): void {
      this.calls += 1;
      if (this.refusal !== undefined) throw this.refusal;
    }

    protected override released(): void {
      this.gone += 1;
    }
  }

  it('close once, and never while in use', async () => {
    const object = new Sample(new Presence(), 'thing');
    object.refusal = new VerbsError('EBUSY');
    await expect(object.close()).rejects.toMatchObject({ code: 'EBUSY' });
    expect(object.usable).toBe(true);
    object.refusal = undefined;
    const closing = object.close();
    expect(() => object.assertUsable()).toThrow(expect.objectContaining({ code: 'EINVAL' }));
    await Promise.all([closing, object.close()]);
    expect([object.calls, object.gone]).toEqual([2, 1]);
  });

  it('close silently when their device is gone, and refuse everything else', async () => {
    const presence = new Presence();
    const object = new Sample(presence, 'thing');
    const notified: string[] = [];
    presence.onLost((error) => notified.push(error.code));
    presence.lose('siw0 is gone');
    presence.lose('twice');
    expect(() => object.assertUsable()).toThrow(
      expect.objectContaining({ code: 'EIO', message: 'siw0 is gone' }),
    );
    object.refusal = new VerbsError('EINVAL');
    await object.close();
    expect([notified, object.gone]).toEqual([['EIO'], 1]);
  });
});

describe('the share of the event loop', () => {
  it('is used up by a busy turn and renewed in the next', async () => {
    await nextTurn();
    expect(shareIsSpent()).toBe(false);
    const end = performance.now() + 5;
    while (performance.now() < end);
    expect(shareIsSpent()).toBe(true);
    await nextTurn();
    await nextTurn();
    expect(shareIsSpent()).toBe(false);
  });
});
