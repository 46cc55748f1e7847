/** A listener whose peers give up before the program accepts them. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { CMEventType } from '#contract/verbs/enums';
import type { CMEvent, ConnectionId } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { patient } from '#test/support/patience';
import { EventChannel, nextOf } from '#verbs-api/client/event-channel';
import { connect, listen } from '#verbs-api/connect';
import { RequestListener } from '#verbs-api/request-listener';

const HOST = '127.0.0.2';

it.each(['iwarp', 'roce'] as const)(
  'accept() skips a %s peer that has just given up',
  async (transport) => {
    const devices = [{ name: 'a', transport, addresses: [HOST] }];
    await using rnic = await createEmbedded({ network: 'isolated', devices });
    await using listener = await listen(rnic, { host: HOST });
    const peer = { host: HOST, port: listener.address.port };
    // Long enough for its request to arrive, except on a very busy machine.
    await expect(connect(rnic, { ...peer, timeoutMs: 50 })).rejects.toMatchObject({
      code: 'ETIMEDOUT',
    });
    const accepting = listener.accept({ signal: patient() });
    await using client = await connect(rnic, { ...peer, signal: patient() });
    await using server = await accepting;
    expect(server.id.peerAddress).toEqual(client.id.localAddress);
  },
);

it('accept() that is cancelled as a request arrives leaves nothing of it', async () => {
  await using rnic = await createEmbedded({ network: 'isolated' });
  await using listener = await listen(rnic, { host: HOST });
  const peer = { host: HOST, port: listener.address.port };
  await expect(connect(rnic, { ...peer, timeoutMs: 50 })).rejects.toThrow();
  const cancel = new AbortController();
  const cancelled = listener.accept({ signal: cancel.signal });
  const refused = connect(rnic, { ...peer, signal: patient() });
  refused.catch(() => undefined);
  cancel.abort(new Error('enough'));
  await expect(cancelled).rejects.toThrow('enough');
  await using server = await listener.accept({ signal: patient() });
  await using client = await refused;
  expect(server.id.peerAddress).toEqual(client.id.localAddress);
});

/** A listener with requests that a program loops over; each request is a name. */
class LoopedListener {
  readonly channel = new EventChannel<CMEvent>();
  /** Requests that `accept` has begun to accept, each with the function that confirms it. */
  readonly begun = new Map<string, () => void>();
  /** Requests that the loop got. */
  readonly looped: string[] = [];
  readonly listener: RequestListener<object, { name: string; close(): Promise<void> }, Named>;

  constructor() {
    const id = {
      nextEvent: (...[limit]: Parameters<ConnectionId['nextEvent']>) => nextOf(this.channel, limit),
      events: () => this.channel[Symbol.asyncIterator](),
      close: async () => this.channel.close(new Error('closed')),
    } as unknown as ConnectionId;
    const address = { address: HOST, port: 1 };
    this.listener = new RequestListener(
      id,
      address,
      ({ text }) => this.#named(text),
      () => {},
    );
  }

  #named(name: string): Named {
    const accept = () =>
      new Promise<{ name: string; close(): Promise<void> }>((resolve) => {
        this.begun.set(name, () => resolve({ name, close: async () => undefined }));
      });
    return { name, accept };
  }

  async loop(): Promise<void> {
    for await (const { name } of this.listener) this.looped.push(name);
  }

  ask(name: string): void {
    const id = { close: async () => undefined };
    this.channel.push({ type: CMEventType.connectRequest, text: name, id } as CMEvent);
  }
}

interface Named {
  readonly name: string;
  accept(): Promise<{ name: string; close(): Promise<void> }>;
}

describe('a loop over requests, beside accept()', () => {
  afterEach(() => vi.useRealTimers());

  it.each(Array.from({ length: 12 }, (_, ticks) => ticks))(
    'gets a request that accept() took but did not need, %i ticks after a peer confirmed',
    async (ticks) => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      const side = new LoopedListener();
      const accepted = side.listener.accept();
      const looping = side.loop();
      side.ask('slow');
      await turn();
      await vi.advanceTimersByTimeAsync(500);
      // Both wait for a request now, since a peer is late.
      side.ask('one');
      await turn();
      side.begun.get('slow')?.();
      for (let tick = 0; tick < ticks; tick += 1) await undefined;
      side.ask('two');
      expect((await accepted).name).toBe('slow');
      await turn();
      await turn();
      expect([...side.looped, ...side.begun.keys()].sort()).toEqual(['one', 'slow', 'two']);
      await side.listener.close();
      await looping;
    },
  );

  it('throws if the listener is lost', async () => {
    const side = new LoopedListener();
    const looping = side.loop();
    side.channel.fail(new Error('the device is gone'));
    await expect(looping).rejects.toThrow('the device is gone');
  });
});

/** Promises settle. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
