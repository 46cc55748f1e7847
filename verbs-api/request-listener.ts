/** A listening id whose connect requests are taken one by one: what listeners of all kinds share. */
import { CMEventType } from './contract/verbs/enums.ts';
import type { CMEvent, ConnectionId, SocketAddress } from './contract/verbs/provider.ts';
import { type WaitLimit, within } from './deadline.ts';

/** A request of a peer, which is accepted with options. */
interface AcceptableRequest<Options, Endpoint> {
  accept(options?: Options): Promise<Endpoint>;
}

/** See the module's comment. */
export class RequestListener<
  Options extends WaitLimit,
  Endpoint,
  Request extends AcceptableRequest<Options, Endpoint>,
> implements AsyncDisposable, AsyncIterable<Request>
{
  readonly id: ConnectionId;
  readonly address: SocketAddress;
  readonly #requestOf: (event: CMEvent) => Request;

  /** `requestOf` makes a request of the event that tells of it. */
  constructor(id: ConnectionId, address: SocketAddress, requestOf: (event: CMEvent) => Request) {
    this.id = id;
    this.address = address;
    this.#requestOf = requestOf;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Request, void, undefined> {
    for await (const event of this.id.events()) {
      if (event.type === CMEventType.connectRequest) yield this.#requestOf(event);
    }
  }

  accept(options?: Options): Promise<Endpoint> {
    return within(options ?? {}, 'accept', async (signal) => {
      for (;;) {
        const event = await this.id.nextEvent({ signal });
        if (event.type !== CMEventType.connectRequest) continue;
        const request = this.#requestOf(event);
        if (options === undefined) return await request.accept();
        return await request.accept({ ...options, signal, timeoutMs: undefined });
      }
    });
  }

  close(): Promise<void> {
    return this.id.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
