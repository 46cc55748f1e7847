/**
 * What passes on a connection, one line for each MPA frame and each FPDU. It sits on the tap of a
 * host and reads the octets as its peer would.
 */
import { ChunkPool } from '../../engine/chunk-pool.ts';
import { FpduReceiver } from '../../engine/fpdu-receiver.ts';
import type { CaptureTap, LinkAddresses, LinkTap } from '../../transport/capture-tap.ts';
import { crc32c } from '../../wire/crc32c.ts';
import { dumpStartupFrame, dumpULPDU } from '../../wire/dump.ts';
import {
  parseStartupFrame,
  type StartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
} from '../../wire/startup-frame.ts';

/** Which way octets go, as the host with the tap sees it. */
export type Direction = 'outbound' | 'inbound';

/** Takes the lines of a trace. */
export type TraceLine = (direction: Direction, text: string) => void;

/** Traces every link of a host. */
export class WireTrace implements CaptureTap {
  readonly #line: TraceLine;

  constructor(line: TraceLine) {
    this.#line = line;
  }

  opened(addresses: LinkAddresses): LinkTap {
    return new LinkTrace(addresses.dialed, this.#line);
  }
}

/** Traces one link: the startup frames, then the FPDUs of either direction. */
class LinkTrace implements LinkTap {
  readonly #dialed: boolean;
  readonly #line: TraceLine;
  readonly #pool = new ChunkPool();
  /** Octets of a startup frame that has come in part. */
  readonly #held: Record<Direction, Uint8Array> = {
    outbound: new Uint8Array(),
    inbound: new Uint8Array(),
  };
  readonly #frames: Partial<Record<Direction, StartupFrame>> = {};
  readonly #receivers: Partial<Record<Direction, FpduReceiver>> = {};

  constructor(dialed: boolean, line: TraceLine) {
    this.#dialed = dialed;
    this.#line = line;
  }

  outbound(octets: Uint8Array): void {
    this.#take('outbound', octets);
  }

  inbound(octets: Uint8Array): void {
    this.#take('inbound', octets);
  }

  finished(by: 'us' | 'peer'): void {
    this.#line(by === 'us' ? 'outbound' : 'inbound', 'FIN');
  }

  closed(reset: boolean): void {
    if (reset) this.#line('inbound', 'the connection was reset');
  }

  #take(direction: Direction, octets: Uint8Array): void {
    if (this.#frames[direction] !== undefined) this.#takeFPDUs(direction, octets);
    else this.#takeStartup(direction, Buffer.concat([this.#held[direction], octets]));
  }

  #takeStartup(direction: Direction, octets: Uint8Array): void {
    const kind: StartupFrameKind =
      (direction === 'outbound') === this.#dialed ? 'request' : 'reply';
    const needed = startupFrameBytesNeeded(octets, octets.length, kind);
    if (typeof needed === 'string') {
      this.#line(direction, `no MPA ${kind}: ${needed}`);
      return;
    }
    if (octets.length < needed) {
      this.#held[direction] = octets;
      return;
    }
    const frame = parseStartupFrame(octets.subarray(0, needed), kind);
    if (typeof frame === 'string') {
      this.#line(direction, `no MPA ${kind}: ${frame}`);
      return;
    }
    this.#frames[direction] = frame;
    this.#line(direction, dumpStartupFrame(frame));
    if (octets.length > needed) this.#takeFPDUs(direction, octets.subarray(needed));
  }

  #takeFPDUs(direction: Direction, octets: Uint8Array): void {
    const receiver = this.#receivers[direction] ?? this.#createReceiver(direction);
    this.#receivers[direction] = receiver;
    const error = receiver.push(octets, 0, octets.length, {
      handleUlpdu: (ulpdu, start, length) => {
        this.#line(direction, dumpULPDU(ulpdu, start, length));
        return undefined;
      },
    });
    if (error !== undefined) this.#line(direction, `bad FPDU: ${error.text}`);
  }

  /** FPDUs come after both frames, which say how they are made (RFC 5044 §7.1.1). */
  #createReceiver(direction: Direction): FpduReceiver {
    const { outbound, inbound } = this.#frames;
    const wish = direction === 'outbound' ? inbound : outbound;
    return new FpduReceiver({
      pool: this.#pool,
      crc32c,
      crcEnabled: outbound?.crc === true || inbound?.crc === true,
      markers: wish?.markers === true,
    });
  }
}
