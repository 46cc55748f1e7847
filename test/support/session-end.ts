/** One end of a DDP stream session over a simulated association: a real stream and a naive user. */

import type { Transmit } from '#base/transmit';
import type { HostClock } from '#daemon/host/links/network';
import type { Association } from '#daemon/host/sctp/association';
import { CONTROL, SEGMENT } from '#daemon/host/sctp/sctp-link';
import type { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { Stream } from '#daemon/iwarp/engine/stream';
import type { StreamEvent, StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { SctpLayer } from '#daemon/iwarp/sctp/sctp-layer';
import { PayloadProtocol } from '#daemon/iwarp/sctp/session-message';
import { ModelUser } from '#test/support/model-user';
import { StreamEvents } from './stream-events.ts';

interface SessionEndOptions {
  readonly clock: Pick<HostClock, 'now' | 'after'>;
  readonly pool: ChunkPool;
  readonly association: Association;
  readonly streamId: number;
  readonly options: StreamOptions;
}

export class SessionEnd extends StreamEvents {
  readonly stream: Stream;
  readonly layer: SctpLayer;
  readonly user = new ModelUser();
  readonly streamId: number;
  /** Called for each event, after it is recorded. */
  onEvent: (event: StreamEvent) => void = () => {};
  aborted = false;
  sentMessages = 0;
  longestMessage = 0;
  heldMost = 0;
  readonly #clock: Pick<HostClock, 'now' | 'after'>;
  readonly #association: Association;
  #pending: Transmit | undefined = undefined;
  #due = Number.POSITIVE_INFINITY;

  constructor({ clock, pool, association, streamId, options }: SessionEndOptions) {
    super();
    this.#clock = clock;
    this.#association = association;
    this.streamId = streamId;
    const { peerAdaptation } = association;
    this.layer = new SctpLayer(options, { pool, peerAdaptation, highWaterBytes: 16_384 });
    this.stream = new Stream(options, this.layer);
  }

  /** True when another session may use the SCTP stream. */
  get over(): boolean {
    return (this.closed || this.types.includes('rejected')) && this.layer.reusable;
  }

  // From the association

  handleMessage(payloadProtocol: number, bytes: Uint8Array): void {
    this.stream.handleBytes(bytes, this.#clock.now(), {
      payloadProtocol,
      unsealed: false,
      lent: undefined,
    });
    this.layer.assertInvariants();
    this.heldMost = Math.max(this.heldMost, this.layer.heldCount);
    this.settle();
  }

  handleAcknowledged(): void {
    if (this.#pending === undefined) this.stream.handleAcknowledged(this.#clock.now());
    this.settle();
  }

  handleEnded(code: string | undefined): void {
    this.stream.handleClosed(code, this.#clock.now());
    this.settle();
  }

  /** Carries out the stream's actions, until the association is full. */
  settle(): void {
    const now = this.#clock.now();
    this.stream.pump(now);
    for (;;) {
      this.#collect();
      if (this.aborted) break;
      const message = this.#pending ?? this.stream.pollTransmit();
      if (message === undefined) break;
      const { bytes } = message;
      const segment = message.payloadProtocol === PayloadProtocol.segment;
      this.#pending = message;
      if (!this.#association.send(this.streamId, segment ? SEGMENT : CONTROL, bytes)) break;
      this.#pending = undefined;
      this.sentMessages += 1;
      if (segment) this.longestMessage = Math.max(this.longestMessage, bytes.length);
      this.stream.handleFlushed(bytes.length, now);
    }
    this.#watch();
  }

  #collect(): void {
    for (let event = this.stream.pollEvent(); event; event = this.stream.pollEvent()) {
      this.events.push(event);
      if (event.type === 'abort') this.aborted = true;
      this.onEvent(event);
    }
  }

  #watch(): void {
    const due = this.stream.nextDeadline();
    if (due === this.#due || due === Number.POSITIVE_INFINITY) return;
    this.#due = due;
    this.#clock.after(due - this.#clock.now(), () => {
      this.#due = Number.POSITIVE_INFINITY;
      this.stream.handleDeadline(this.#clock.now());
      this.settle();
    });
  }
}
