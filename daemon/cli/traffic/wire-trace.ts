/** What passes on the connections of a host, one line for each MPA frame and each FPDU. */

import type { CaptureTap, LinkAddresses, LinkTap } from '../../capture/capture-tap.ts';
import { type Sender, StreamTrace } from '../../capture/stream-trace.ts';

/** Which way octets go, as the host with the tap sees it. */
export type Direction = 'outbound' | 'inbound';

/** Takes the lines of a trace. */
export type WireLine = (direction: Direction, text: string) => void;

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
      outbound: (octets) => trace.take(us, octets),
      inbound: (octets) => trace.take(peer, octets),
      finished: (by) => trace.finished(by === 'us' ? us : peer),
      closed: (reset) => {
        if (reset) this.#line('inbound', 'the connection was reset');
      },
    };
  }
}
