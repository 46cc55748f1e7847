/** `iwarpd trace`: what passes on a running daemon's connections, a line each. */
import {
  parseLostBytes,
  TapKind,
  type TapRecord,
} from '../../../verbs-api/contract/tap-records.ts';
import { chooseCrcEngine } from '../../adapter/crc-engine.ts';
import { linkAddresses } from '../../capture/link-addresses.ts';
import { type Sender, StreamTrace, type TraceKind } from '../../capture/stream-trace.ts';
import { ChunkPool } from '../../engine/chunk-pool.ts';
import type { Crc32c } from '../../wire/crc32c.ts';
import type { Output } from '../output.ts';
import { type TrafficOptions, type TrafficUser, watchUntilDone } from './live-traffic.ts';

/** The options as commander hands them over. */
export interface TraceArguments extends TrafficOptions {
  readonly json?: boolean;
}

/** Prints until Ctrl-C, the time given, or the daemon's end. VerbsError without a daemon. */
export async function runTrace(
  given: TraceArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  await watchUntilDone(given, signal, new Tracer(output, given.json === true));
}

interface TracedLink {
  readonly trace: StreamTrace;
  readonly us: Sender;
  readonly peer: Sender;
}

class Tracer implements TrafficUser {
  readonly #output: Output;
  readonly #json: boolean;
  readonly #pool = new ChunkPool();
  readonly #crc32c: Crc32c = chooseCrcEngine().crc32c;
  readonly #links = new Map<number, TracedLink>();
  #micros = 0;

  constructor(output: Output, json: boolean) {
    this.#output = output;
    this.#json = json;
  }

  onBegin(): void {
    this.#output.note('tracing; Ctrl-C ends it');
  }

  onRecord({ kind, by, link, micros, body }: TapRecord): void {
    this.#micros = micros;
    if (kind === TapKind.opened) {
      this.#links.set(link, this.#open(body));
      return;
    }
    if (kind === TapKind.skipped) {
      const { localAddress, localPort, remoteAddress, remotePort } = linkAddresses(body);
      const ends = `${localAddress}:${localPort} and ${remoteAddress}:${remotePort}`;
      this.#output.note(`left out: ${ends}, open before and with markers`);
      return;
    }
    const found = this.#links.get(link);
    if (found === undefined) return;
    const { trace } = found;
    const sender = found[by];
    if (kind === TapKind.octets) trace.take(sender, body);
    else if (kind === TapKind.finished) trace.finished(sender);
    else if (kind === TapKind.lost) {
      trace.broken(sender, `${parseLostBytes(body)} octets lost: the reader was too slow`);
    } else if (kind === TapKind.reset) trace.reset(sender);
    if (kind === TapKind.closed || kind === TapKind.reset) this.#links.delete(link);
  }

  #open(body: Uint8Array): TracedLink {
    const { localAddress, localPort, remoteAddress, remotePort, dialed } = linkAddresses(body);
    const local = `${hostText(localAddress)}:${localPort}`;
    const remote = `${hostText(remoteAddress)}:${remotePort}`;
    const [us, peer]: [Sender, Sender] = dialed
      ? ['initiator', 'responder']
      : ['responder', 'initiator'];
    const trace = new StreamTrace({
      pool: this.#pool,
      crc32c: this.#crc32c,
      line: (sender, kind, text) => {
        if (sender === us) this.#print(local, remote, kind, text);
        else this.#print(remote, local, kind, text);
      },
    });
    return { trace, us, peer };
  }

  #print(source: string, destination: string, kind: TraceKind, text: string): void {
    const time = new Date(this.#micros / 1000).toISOString();
    if (this.#json) this.#output.line(JSON.stringify({ time, source, destination, kind, text }));
    else this.#output.line(`${time.slice(11, 23)}  ${source} > ${destination}  ${text}`);
  }
}

/** IPv6 addresses in brackets. */
function hostText(address: string): string {
  return address.includes(':') ? `[${address}]` : address;
}
