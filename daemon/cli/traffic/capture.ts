/** `iwarpd capture`: writes the traffic of a running daemon's connections to a pcapng file. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { parseTappedPacket } from '#contract/protocol/packet-records';
import { parseLostBytes, TapKind, type TapRecord } from '#contract/protocol/tap-records';
import { linkAddresses } from '#daemon/capture/link-addresses';
import { type CapturedLink, PcapngCapture } from '#daemon/capture/pcapng-capture';
import { sctpEnds } from '#daemon/capture/sctp-trace';
import { WriteFailure } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import {
  assertTraffic,
  filterOf,
  selectedQueuePairs,
  type TrafficOptions,
  type TrafficUser,
  watchUntilDone,
} from './live-traffic.ts';

/** The options as commander passes them. */
export interface CaptureArguments extends TrafficOptions {
  /** The file; `-` for standard output. */
  readonly write: string;
}

const STANDARD_OUTPUT_FD = 1;
const MEBIBYTE = 1024 * 1024;

/**
 * Writes until Ctrl-C, the time limit, or the daemon's end. WriteFailure if the file cannot be written,
 * for example on a full disk: earlier records stay in the file, and only this process is affected.
 */
export async function runCapture(
  given: CaptureArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  // Before opening the file: a command that cannot start must not truncate an earlier capture.
  await assertTraffic(given);
  const selected = await selectedQueuePairs(given);
  const file = new CaptureFile(given.write);
  try {
    const recorder = new Recorder(file, () => output.note(`capturing to ${file.name}`));
    try {
      await watchUntilDone(
        given,
        { ...filterOf(given), ...selected, topics: ['links', 'packets'] },
        signal,
        recorder,
      );
      recorder.finish();
    } finally {
      output.note(recorder.summary);
    }
  } finally {
    file.close();
  }
}

/** The file, written synchronously: a slow disk delays only this process. */
class CaptureFile {
  readonly name: string;
  readonly #fd: number;
  bytes = 0;

  constructor(path: string) {
    this.name = path === '-' ? 'standard output' : path;
    try {
      this.#fd = path === '-' ? STANDARD_OUTPUT_FD : openSync(path, 'w', 0o600);
    } catch (error) {
      throw new WriteFailure(this.name, error);
    }
  }

  write(bytes: Uint8Array): void {
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(this.#fd, bytes, done);
    } catch (error) {
      throw new WriteFailure(this.name, error);
    }
    this.bytes += bytes.length;
  }

  close(): void {
    if (this.#fd !== STANDARD_OUTPUT_FD) closeSync(this.#fd);
  }
}

class Recorder implements TrafficUser {
  readonly onBegin: () => void;
  readonly #file: CaptureFile;
  readonly #capture: PcapngCapture;
  readonly #links = new Map<number, CapturedLink>();
  #micros = Date.now() * 1000;
  #connections = 0;
  #rocePackets = 0;
  #sctpPackets = 0;
  #lostPackets = 0;
  #lostBytes = 0;
  #losses = 0;
  #skipped = 0;

  constructor(file: CaptureFile, onBegin: () => void) {
    this.onBegin = onBegin;
    this.#file = file;
    this.#capture = new PcapngCapture({
      write: (bytes) => file.write(bytes),
      nowMicros: () => this.#micros,
    });
  }

  onRecord({ kind, by, link, micros, body }: TapRecord): void {
    this.#micros = micros;
    const captured = this.#links.get(link);
    switch (kind) {
      case TapKind.opened:
        this.#connections += 1;
        this.#links.set(link, this.#capture.opened(linkAddresses(body)));
        return;
      case TapKind.bytes:
        if (by === 'us') captured?.outbound(body);
        else captured?.inbound(body);
        return;
      case TapKind.packet:
        this.#record(parseTappedPacket(body).bytes);
        return;
      case TapKind.finished:
        captured?.finished(by);
        return;
      case TapKind.closed:
      case TapKind.reset:
        captured?.closed(kind === TapKind.reset);
        this.#links.delete(link);
        return;
      case TapKind.lost:
        if (link === 0) {
          this.#lostPackets += parseLostBytes(body);
          return;
        }
        this.#losses += 1;
        this.#lostBytes += parseLostBytes(body);
        captured?.lost(by, parseLostBytes(body));
        return;
      case TapKind.skipped:
        this.#skipped += 1;
        return;
      default:
      // A newer daemon may send other kinds of records.
    }
  }

  #record(datagram: Uint8Array): void {
    if (sctpEnds(datagram, 0) === undefined) this.#rocePackets += 1;
    else this.#sctpPackets += 1;
    this.#capture.packet(datagram);
  }

  /** Writes the end of the file. */
  finish(): void {
    this.#capture.finish(this.#losses + this.#lostPackets);
  }

  get summary(): string {
    const size = `${(this.#file.bytes / MEBIBYTE).toFixed(1)} MiB`;
    const connections = `${this.#connections} connection${this.#connections === 1 ? '' : 's'}`;
    const packets = [
      ...(this.#rocePackets === 0 ? [] : [`${this.#rocePackets} RoCEv2 packets, `]),
      ...(this.#sctpPackets === 0 ? [] : [`${this.#sctpPackets} SCTP packets, `]),
    ].join('');
    return [
      `${this.#file.name}: ${connections}, ${packets}${size}`,
      ...(this.#lostBytes > 0 ? [`${this.#lostBytes} bytes lost: processor or disk too slow`] : []),
      ...(this.#lostPackets > 0
        ? [`${this.#lostPackets} packets lost: processor or disk too slow`]
        : []),
      ...(this.#skipped > 0 ? [`${this.#skipped} left out: already open, with markers`] : []),
    ].join('; ');
  }
}
