/**
 * Converts a watcher's events to readable records: MPA frames, FPDUs and ends of links, packets, work
 * requests and completions of devices, in the order received.
 */
import { endText } from '#base/address';
import type { TappedPacket } from '#contract/protocol/packet-records';
import type { LinkQueuePairs, TapSide } from '#contract/protocol/tap-records';
import type { TraceRecord } from '#contract/protocol/trace-sample';
import {
  type CompletedWork,
  completionStatusName,
  type PostedWork,
  workOpcodeName,
} from '#contract/protocol/work-records';
import { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Crc32 } from '../roce/wire/crc32.ts';
import type { LinkAddresses } from './capture-tap.ts';
import { DatagramTrace } from './datagram-trace.ts';
import { SctpTrace } from './sctp-trace.ts';
import { type Sender, StreamTrace, type TracedFpdu, type TraceKind } from './stream-trace.ts';
import { completedText, postedText, wrIdText } from './work-text.ts';

/** The place of an event, as text: `ADDRESS:PORT` twice, or the queue pair. */
export interface TracePlace {
  readonly source: string;
  /** Undefined for work. */
  readonly destination: string | undefined;
}

interface TraceReaderOptions {
  readonly record: (record: TraceRecord, place: TracePlace) => void;
  readonly crc32c: Crc32c;
  readonly crc32: Crc32;
}

interface TracedLink {
  readonly trace: StreamTrace;
  readonly senders: Readonly<Record<TapSide, Sender>>;
  readonly places: Readonly<Record<TapSide, TracePlace>>;
  pairs: LinkQueuePairs;
}

/** Ignores events of a link that was not opened. */
export class TraceReader {
  /** Time of the next event: microseconds since 1970. */
  micros = 0;
  readonly #options: TraceReaderOptions;
  readonly #pool = new ChunkPool();
  readonly #links = new Map<number, TracedLink>();
  readonly #datagrams: DatagramTrace;
  readonly #sctp: SctpTrace;

  constructor(options: TraceReaderOptions) {
    this.#options = options;
    this.#datagrams = new DatagramTrace(options.crc32);
    this.#sctp = new SctpTrace(options.crc32c);
  }

  opened(link: number, addresses: LinkAddresses): void {
    const { dialed } = addresses;
    const local = endText(addresses.localAddress, addresses.localPort);
    const remote = endText(addresses.remoteAddress, addresses.remotePort);
    const senders: TracedLink['senders'] = dialed
      ? { us: 'initiator', peer: 'responder' }
      : { us: 'responder', peer: 'initiator' };
    const trace = new StreamTrace({
      pool: this.#pool,
      crc32c: this.#options.crc32c,
      line: (sender, kind, text, fpdu) => {
        this.#reportLink(link, sender === senders.us ? 'us' : 'peer', kind, text, fpdu);
      },
    });
    const places = {
      us: { source: local, destination: remote },
      peer: { source: remote, destination: local },
    };
    this.#links.set(link, { trace, senders, places, pairs: {} });
  }

  joined(link: number, pairs: LinkQueuePairs): void {
    const found = this.#links.get(link);
    if (found !== undefined) found.pairs = pairs;
  }

  /** Bytes of a link; borrowed for the call. */
  bytes(link: number, by: TapSide, bytes: Uint8Array): void {
    const found = this.#links.get(link);
    found?.trace.take(found.senders[by], bytes);
  }

  finished(link: number, by: TapSide): void {
    const found = this.#links.get(link);
    found?.trace.finished(found.senders[by]);
  }

  /** Bytes are missing, so the rest cannot be decoded. */
  lost(link: number, by: TapSide, bytes: number): void {
    const found = this.#links.get(link);
    const text = `${bytes} bytes lost: the reader was too slow`;
    found?.trace.broken(found.senders[by], text);
  }

  closed(link: number, reset: boolean): void {
    const found = this.#links.get(link);
    if (reset) found?.trace.reset(found.senders.us);
    this.#links.delete(link);
  }

  /** A packet between queue pairs; borrowed for the call. */
  packet({ sender, receiver, bytes }: TappedPacket): void {
    const traced = this.#datagrams.take(bytes, 0) ?? this.#sctp.take(bytes, 0);
    if (traced === undefined) return;
    const { source, destination, kind, opcode, payloadBytes, text } = traced;
    const [pair, peer] = sender === undefined ? [receiver, sender] : [sender, receiver];
    if (pair === undefined) return;
    this.#options.record(
      {
        micros: this.micros,
        kind,
        device: pair.device,
        qpn: pair.qpn,
        ...(peer === undefined ? {} : { peerDevice: peer.device, peerQpn: peer.qpn }),
        by: sender === undefined ? 'peer' : 'us',
        ...(opcode === '' ? {} : { opcode, bytes: payloadBytes }),
        text,
      },
      { source, destination },
    );
  }

  posted(device: string, work: PostedWork): void {
    const { qpn, opcode, lengthBytes } = work;
    this.#options.record(
      {
        micros: this.micros,
        kind: 'wqe',
        device,
        qpn,
        opcode: workOpcodeName(opcode),
        wrId: wrIdText(work),
        bytes: lengthBytes,
        text: postedText(work),
      },
      workPlace(device, qpn),
    );
  }

  completed(device: string, work: CompletedWork): void {
    const { qpn, opcode, status, lengthBytes } = work;
    this.#options.record(
      {
        micros: this.micros,
        kind: 'cqe',
        device,
        qpn,
        opcode: workOpcodeName(opcode),
        wrId: wrIdText(work),
        bytes: lengthBytes,
        status: completionStatusName(status),
        text: completedText(work),
      },
      workPlace(device, qpn),
    );
  }

  #reportLink(
    link: number,
    by: TapSide,
    kind: TraceKind,
    text: string,
    fpdu: TracedFpdu | undefined,
  ): void {
    const found = this.#links.get(link);
    if (found === undefined) return;
    const { us, peer } = found.pairs;
    this.#options.record(
      {
        micros: this.micros,
        kind,
        ...(us === undefined ? {} : { device: us.device, qpn: us.qpn }),
        ...(peer === undefined ? {} : { peerDevice: peer.device, peerQpn: peer.qpn }),
        link,
        by,
        ...(fpdu === undefined ? {} : { opcode: fpdu.opcode, bytes: fpdu.payloadBytes }),
        text,
      },
      found.places[by],
    );
  }
}

function workPlace(device: string, qpn: number): TracePlace {
  return { source: `${device} QP ${qpn}`, destination: undefined };
}
