/** Traffic of a host's connections, one line for each MPA frame and each FPDU. */
import type { CaptureTap, LinkAddresses, LinkTap } from '#daemon/capture/capture-tap';
import { type Sender, StreamTrace } from '#daemon/capture/stream-trace';

/** Direction, as seen by the host with the tap. */
type Direction = 'outbound' | 'inbound';

/** Receives the lines of a trace. */
type WireLine = (direction: Direction, text: string) => void;

/** Traces every link of a host. */
export class WireTrace implements CaptureTap {
  readonly #line: WireLine;

  constructor(line: WireLine) {
    this.#line = line;
  }

  opened({ dialed }: LinkAddresses): LinkTap {
    const [us, peer]: [Sender, Sender] = dialed
      ? ['initiator', 'responder']
      : ['responder', 'initiator'];
    const trace = new StreamTrace({
      line: (sender, _, text) => this.#line(sender === us ? 'outbound' : 'inbound', text),
    });
    return {
      watched: true,
      outbound: (bytes) => trace.take(us, bytes),
      inbound: (bytes) => trace.take(peer, bytes),
      finished: (by) => trace.finished(by === 'us' ? us : peer),
      closed: (reset) => {
        if (reset) this.#line('inbound', 'the connection was reset');
      },
    };
  }
}
