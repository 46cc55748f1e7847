/** A listening id whose connect requests are taken one by one: the common part of all listeners. */
import { setImmediate } from 'node:timers/promises';
import { CMEventType } from '#contract/verbs/enums';
import type { CancelSignal, CMEvent, ConnectionId, SocketAddress } from '#contract/verbs/provider';
import { type AcceptLimit, AcceptQueue } from './accept-queue.ts';
import { within } from './client/deadline.ts';
import { owned } from './dialing.ts';

/** A request of a peer, which is accepted with options. */
interface AcceptableRequest<Options, Endpoint> {
  accept(options?: Options): Promise<Endpoint>;
}

export class RequestListener<
  Options extends AcceptLimit,
  Endpoint extends { close(): Promise<void> },
  Request extends AcceptableRequest<Options, Endpoint>,
> implements AsyncDisposable, AsyncIterable<Request>
{
  readonly id: ConnectionId;
  readonly address: SocketAddress;
  readonly #requestOf: (event: CMEvent) => Request;
  readonly #checkOptions: (options: Options) => void;
  readonly #queue: AcceptQueue<Options, Endpoint>;

  /** `requestOf` makes a request of the event that reports it; `checkOptions` throws EINVAL. */
  constructor(
    id: ConnectionId,
    address: SocketAddress,
    requestOf: (event: CMEvent) => Request,
    checkOptions: (options: Options) => void,
  ) {
    this.#checkOptions = checkOptions;
    this.id = id;
    this.address = address;
    this.#requestOf = requestOf;
    this.#queue = new AcceptQueue({
      next: (signal) => this.#next(signal),
      accept: (request, options) =>
        owned(request.id, options.signal, async () => {
          // A peer may have given up since it asked: handle this turn's events of that first.
          await setImmediate();
          return await requestOf(request).accept(options);
        }),
    });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Request, void, undefined> {
    for (;;) {
      let request: CMEvent;
      try {
        request = await this.#queue.take();
      } catch {
        break;
      }
      yield this.#requestOf(request);
    }
    // The events say whether the listener was closed or lost.
    for await (const event of this.id.events()) {
      if (event.type === CMEventType.connectRequest) yield this.#requestOf(event);
    }
  }

  async accept(options: Options = {} as Options): Promise<Endpoint> {
    this.#checkOptions(options);
    return await within(options, 'accept', (signal) => this.#queue.accept(options, signal));
  }

  async close(): Promise<void> {
    await this.id.close();
    await this.#queue.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #next(signal: CancelSignal): Promise<CMEvent> {
    for (;;) {
      const event = await this.id.nextEvent({ signal });
      if (event.type === CMEventType.connectRequest) return event;
    }
  }
}
