import { describe, expect, it } from 'vitest';
import { EventChannel } from '#verbs-api/client/event-channel';

describe('EventChannel', () => {
  it('delivers each event once, in order, to the earliest waiter', async () => {
    const channel = new EventChannel<number>();
    channel.push(1);
    expect(await channel.next()).toBe(1);
    const waiting = [channel.next(), channel.next()];
    channel.push(2);
    channel.push(3);
    expect(await Promise.all(waiting)).toEqual([2, 3]);
  });

  it('removes a cancelled reader, so it swallows no event', async () => {
    const channel = new EventChannel<number>();
    const cancel = new AbortController();
    const cancelled = channel.next(cancel.signal);
    const patient = channel.next();
    cancel.abort(new Error('enough'));
    channel.push(1);
    await expect(cancelled).rejects.toThrow('enough');
    expect(await patient).toBe(1);
    await expect(channel.next(AbortSignal.abort(new Error('before')))).rejects.toThrow('before');
  });

  it('delivers queued events before it ends', async () => {
    for (const end of ['close', 'fail'] as const) {
      const channel = new EventChannel<number>();
      channel.push(1);
      channel[end](new Error('over'));
      channel.push(2);
      expect(await channel.next()).toBe(1);
      await expect(channel.next()).rejects.toThrow('over');
    }
  });

  it('ends loops when it closes, and throws into them when it fails', async () => {
    const closed = new EventChannel<number>();
    closed.push(1);
    closed.close(new Error('over'));
    closed.fail(new Error('late'));
    const seen: number[] = [];
    for await (const event of closed) seen.push(event);
    expect(seen).toEqual([1]);
    const failed = new EventChannel<number>();
    const loop = failed[Symbol.asyncIterator]().next();
    failed.fail(new Error('lost'));
    await expect(loop).rejects.toThrow('lost');
  });
});
