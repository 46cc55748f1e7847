/** The events of a stream, in order. */
import type { StreamEvent } from '#daemon/iwarp/engine/stream-api';
import type { StreamFailure } from '#daemon/iwarp/engine/stream-failure';

export class StreamEvents {
  readonly events: StreamEvent[] = [];

  get types(): string[] {
    return this.events.map((event) => event.type);
  }

  get closed(): boolean {
    return this.events.some((event) => event.type === 'closed');
  }

  /** The failure of the `closed` event; undefined before, or after a graceful end. */
  get failure(): StreamFailure | undefined {
    const closed = this.events.find((event) => event.type === 'closed');
    return closed?.type === 'closed' ? closed.failure : undefined;
  }
}
