/** Decodes the bytes of a connection like its two ends: one line per MPA frame and FPDU. */
import { ChunkPool } from '../iwarp/engine/chunk-pool.ts';
import { FpduReceiver } from '../iwarp/engine/fpdu-receiver.ts';
import { type Crc32c, crc32c } from '../iwarp/wire/crc32c.ts';
import {
  readDDPHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
} from '../iwarp/wire/ddp-header.ts';
import { dumpStartupFrame, dumpULPDU } from '../iwarp/wire/dump.ts';
import { OPCODES, RDMAPControl } from '../iwarp/wire/rdmap-header.ts';
import {
  parseStartupFrame,
  type StartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
} from '../iwarp/wire/startup-frame.ts';

/** The side that sent the SYN and the MPA Request, or the other one. */
export type Sender = 'initiator' | 'responder';

/** The subject of a line: an MPA frame, an FPDU, unreadable bytes, a FIN or a reset. */
export type TraceKind = 'mpa' | 'fpdu' | 'error' | 'end';

/** The fields of an FPDU, in addition to its line. */
export interface TracedFpdu {
  /** Name of the RDMAP message: 'Send', 'Read Request' …. */
  readonly opcode: string;
  /** Bytes after the DDP and RDMAP header. */
  readonly payloadBytes: number;
}

/** Takes the lines of a trace; `fpdu` is set for FPDU lines. */
type TraceLine = (
  sender: Sender,
  kind: TraceKind,
  text: string,
  fpdu: TracedFpdu | undefined,
) => void;

interface StreamTraceOptions {
  readonly line: TraceLine;
  /** Computes CRCs; default: in JavaScript. */
  readonly crc32c?: Crc32c;
  /** Shared by several traces. */
  readonly pool?: ChunkPool;
}

interface Direction {
  /** The start of an incomplete startup frame. */
  held: Uint8Array;
  frame: StartupFrame | undefined;
  receiver: FpduReceiver | undefined;
  /** Decoding has stopped. */
  broken: boolean;
}

export class StreamTrace {
  readonly #line: TraceLine;
  readonly #crc32c: Crc32c;
  readonly #pool: ChunkPool;
  readonly #directions: Readonly<Record<Sender, Direction>> = {
    initiator: newDirection(),
    responder: newDirection(),
  };

  constructor(options: StreamTraceOptions) {
    this.#line = options.line;
    this.#crc32c = options.crc32c ?? crc32c;
    this.#pool = options.pool ?? new ChunkPool();
  }

  /** Takes the next bytes of one side, borrowed for the call. */
  take(sender: Sender, bytes: Uint8Array): void {
    const direction = this.#directions[sender];
    if (direction.broken || bytes.length === 0) return;
    if (direction.frame === undefined) this.#takeStartup(sender, direction, bytes);
    else this.#takeFpdus(sender, direction, bytes);
  }

  /** One side sent a FIN. */
  finished(sender: Sender): void {
    this.#endOf(sender, 'FIN');
  }

  /** One side sent a reset. */
  reset(sender: Sender): void {
    this.#endOf(sender, 'RST');
  }

  /** Stops decoding one side, with a reason. */
  broken(sender: Sender, text: string): void {
    const direction = this.#directions[sender];
    if (direction.broken) return;
    direction.broken = true;
    direction.held = NO_BYTES;
    direction.receiver?.release();
    this.#line(sender, 'error', text, undefined);
  }

  #endOf(sender: Sender, how: string): void {
    const { held, receiver } = this.#directions[sender];
    const cut = held.length > 0 || receiver?.midFpdu === true;
    this.#line(sender, 'end', cut ? `${how} inside a frame` : how, undefined);
  }

  #takeStartup(sender: Sender, direction: Direction, bytes: Uint8Array): void {
    const kind: StartupFrameKind = sender === 'initiator' ? 'request' : 'reply';
    const all = joined(direction.held, bytes);
    const needed = startupFrameBytesNeeded(all, all.length, kind);
    if (typeof needed === 'string') {
      this.broken(sender, `no MPA ${kind}: ${needed}`);
      return;
    }
    if (all.length < needed) {
      direction.held = all;
      return;
    }
    direction.held = NO_BYTES;
    const frame = parseStartupFrame(all.subarray(0, needed), kind);
    if (typeof frame === 'string') {
      this.broken(sender, `no MPA ${kind}: ${frame}`);
      return;
    }
    direction.frame = frame;
    this.#line(sender, 'mpa', dumpStartupFrame(frame), undefined);
    if (all.length > needed) this.#takeFpdus(sender, direction, all.subarray(needed));
  }

  #takeFpdus(sender: Sender, direction: Direction, bytes: Uint8Array): void {
    const receiver = direction.receiver ?? this.#createReceiver(sender);
    direction.receiver = receiver;
    const error = receiver.push(bytes, 0, bytes.length, {
      handleUlpdu: (ulpdu, start, length) => {
        const text = dumpULPDU(ulpdu, start, length);
        this.#line(sender, 'fpdu', text, tracedFpdu(ulpdu, start, length));
        return undefined;
      },
    });
    if (error !== undefined) this.broken(sender, `bad FPDU: ${error.text}`);
  }

  /** FPDUs follow both startup frames, which define their format (RFC 5044 §7.1.1). */
  #createReceiver(sender: Sender): FpduReceiver {
    const { initiator, responder } = this.#directions;
    const wish = sender === 'initiator' ? responder.frame : initiator.frame;
    return new FpduReceiver({
      pool: this.#pool,
      crc32c: this.#crc32c,
      crcEnabled: initiator.frame?.crc === true || responder.frame?.crc === true,
      markers: wish?.markers === true,
    });
  }
}

const NO_BYTES = new Uint8Array(0);

function tracedFpdu(ulpdu: Uint8Array, start: number, length: number): TracedFpdu {
  const header = readDDPHeader(ulpdu, start, length);
  if (header === undefined) return { opcode: '', payloadBytes: 0 };
  const headerBytes = header.tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
  const opcode = header.ulp & RDMAPControl.opcode;
  const { name } = OPCODES[opcode] ?? { name: `Opcode ${opcode}` };
  return { opcode: name, payloadBytes: length - headerBytes };
}

function newDirection(): Direction {
  return { held: NO_BYTES, frame: undefined, receiver: undefined, broken: false };
}

/** A concatenated copy, since borrowed bytes must not be stored. */
function joined(held: Uint8Array, bytes: Uint8Array): Uint8Array {
  const all = new Uint8Array(held.length + bytes.length);
  all.set(held);
  all.set(bytes, held.length);
  return all;
}
