/** Requests that are accepted in parallel, on a fake clock. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { VerbsError } from '#contract/verbs/errors';
import type { CancelSignal, CMEvent } from '#contract/verbs/provider';
import { type AcceptLimit, AcceptQueue } from '#verbs-api/accept-queue';

interface Options extends AcceptLimit {
  readonly size?: number;
  readonly messages?: object;
}

/** A connection, identified by its request. */
interface End {
  readonly name: string;
  close(): Promise<void>;
}

/** A peer whose request was accepted. */
interface Peer {
  readonly options: Options;
  confirm(): void;
  fail(error: unknown): void;
}

/** Connecting peers, and their outcomes. */
class Peers {
  readonly accepted = new Map<string, Peer>();
  readonly closed: string[] = [];
  readonly #requests: string[] = [];
  /** Waiters for a request, longest first. */
  readonly #wanted: ((name: string) => void)[] = [];
  #closed: VerbsError | undefined;
  readonly queue = new AcceptQueue<Options, End>({
    next: (signal) => this.#next(signal),
    accept: (request, options) => this.#accept(request.text, options),
  });

  ask(name: string): void {
    const wanted = this.#wanted.shift();
    if (wanted === undefined) this.#requests.push(name);
    else wanted(name);
  }

  /** The listener closes. */
  end(): void {
    this.#closed = new VerbsError('EINVAL', 'the listener closed');
  }

  get waiting(): readonly string[] {
    return this.#requests;
  }

  async #next(signal: CancelSignal): Promise<CMEvent> {
    if (this.#closed !== undefined) throw this.#closed;
    const text =
      this.#requests.shift() ??
      (await new Promise<string>((resolve, reject) => {
        this.#wanted.push(resolve);
        signal.addEventListener('abort', () => {
          const at = this.#wanted.indexOf(resolve);
          if (at >= 0) this.#wanted.splice(at, 1);
          reject(new Error('woken'));
        });
      }));
    const id = { close: async () => void this.closed.push(text) };
    return { text, id } as unknown as CMEvent;
  }

  #accept(name: string, options: Options): Promise<End> {
    return new Promise((resolve, reject) => {
      const close = async (): Promise<void> => void this.closed.push(name);
      options.signal?.addEventListener('abort', () => {
        void close();
        reject(new Error('cancelled'));
      });
      this.accepted.set(name, { options, confirm: () => resolve({ name, close }), fail: reject });
    });
  }

  confirm(name: string): void {
    this.accepted.get(name)?.confirm();
  }
}

describe('accepting', () => {
  let peers: Peers;
  const accept = (options: Options = {}, signal?: AbortSignal): Promise<string> =>
    peers.queue.accept(options, signal).then(({ name }) => name);
  /** Advances the clock, and lets promises settle. */
  const pass = (ms: number): Promise<void> => vi.advanceTimersByTimeAsync(ms).then(() => undefined);

  const ask = (name: string, ms: number): Promise<void> => {
    peers.ask(name);
    return pass(ms);
  };
  const confirm = (name: string): Promise<void> => {
    peers.confirm(name);
    return pass(0);
  };

  beforeEach(() => {
    vi.useFakeTimers();
    peers = new Peers();
  });
  afterEach(() => vi.useRealTimers());

  it('takes one request at a time while peers confirm', async () => {
    const first = accept();
    peers.ask('a');
    await ask('b', 100);
    expect([...peers.accepted.keys()]).toEqual(['a']);
    peers.confirm('a');
    expect(await first).toBe('a');
    expect(peers.waiting).toEqual(['b']);
  });

  it('accepts the next request if one is late to confirm, and then all further ones at once', async () => {
    const first = accept();
    for (const name of ['forged', 'forged too', 'honest']) peers.ask(name);
    await pass(499);
    expect(peers.accepted.size).toBe(1);
    await pass(1);
    expect(peers.accepted.size).toBe(3);
    peers.confirm('honest');
    expect(await first).toBe('honest');
  });

  it('keeps a late request for a call with the same options', async () => {
    const first = accept({ messages: { bytes: 7 } });
    await ask('slow', 500);
    await ask('fast', 0);
    peers.confirm('fast');
    expect(await first).toBe('fast');
    await confirm('slow');
    expect(await accept({ messages: { bytes: 7 }, timeoutMs: 5 })).toBe('slow');
    expect(peers.closed).toEqual([]);
  });

  it('closes a late request before a call with other options', async () => {
    const first = accept({ size: 1 });
    await ask('slow', 500);
    await ask('fast', 0);
    peers.confirm('fast');
    await first;
    await confirm('slow');
    const second = accept({ size: 2 });
    await ask('next', 0);
    peers.confirm('next');
    expect(await second).toBe('next');
    expect(peers.closed).toEqual(['slow']);
  });

  it('returns only the one that was prepared last', async () => {
    const prepare = (): void => undefined;
    const first = accept({ prepare });
    await ask('slow', 500);
    peers.ask('fast');
    await ask('waits', 100);
    await confirm('slow');
    expect([...peers.accepted.keys()]).toEqual(['slow', 'fast']);
    peers.confirm('fast');
    expect(await first).toBe('fast');
    await pass(0);
    expect(peers.closed).toEqual(['slow']);
    expect(peers.waiting).toEqual(['waits']);
  });

  it('never returns one that was prepared before one that gave up', async () => {
    const first = accept({ prepare: () => undefined });
    await ask('slow', 500);
    await ask('gives up', 0);
    peers.accepted.get('gives up')?.fail(new VerbsError('ECONNRESET'));
    await confirm('slow');
    await ask('fast', 0);
    peers.confirm('fast');
    expect(await first).toBe('fast');
    await pass(0);
    expect(peers.closed).toEqual(['slow']);
  });

  it.each(['accepts', 'takes'] as const)(
    'leaves a request that it did not need to a call that %s and waits already',
    async (what) => {
      const first = accept();
      await ask('slow', 500);
      const other = what === 'accepts' ? accept() : peers.queue.take().then(({ text }) => text);
      await pass(0);
      peers.ask('next');
      peers.confirm('slow');
      expect(await first).toBe('slow');
      await pass(0);
      await confirm('next');
      expect(await Promise.race([other, Promise.resolve('nothing')])).toBe('next');
    },
  );

  it('ends with the listener, once no request can be confirmed any more', async () => {
    const first = accept();
    await ask('a', 0);
    peers.end();
    await pass(500);
    peers.accepted.get('a')?.fail(new VerbsError('ETIMEDOUT', 'the peer does not answer'));
    await expect(first).rejects.toMatchObject({ code: 'EINVAL' });
  });

  it('continues when the peer gives up or never confirms, and fails for other causes', async () => {
    const first = accept();
    await ask('a', 0);
    peers.accepted.get('a')?.fail(new VerbsError('ETIMEDOUT', 'the peer does not answer'));
    await ask('b', 0);
    peers.accepted.get('b')?.fail(new VerbsError('ECONNRESET'));
    await ask('c', 0);
    peers.accepted.get('c')?.fail(new VerbsError('ENOMEM'));
    await expect(first).rejects.toMatchObject({ code: 'ENOMEM' });
  });

  it('leaves nothing when it is cancelled', async () => {
    const controller = new AbortController();
    const first = accept({}, controller.signal);
    await ask('a', 600);
    await ask('b', 0);
    controller.abort(new Error('enough'));
    await expect(first).rejects.toThrow('enough');
    expect(peers.closed.sort()).toEqual(['a', 'b']);
    const second = accept();
    await ask('c', 0);
    peers.confirm('c');
    expect(await second).toBe('c');
  });

  it('closes, with its listener, only endpoints that no call waits for', async () => {
    const first = accept();
    await ask('slow', 500);
    await ask('fast', 0);
    peers.confirm('fast');
    await first;
    const second = accept();
    await ask('last', 0);
    await peers.queue.close();
    expect(peers.closed).toEqual(['slow']);
    peers.confirm('last');
    expect(await second).toBe('last');
  });
});
