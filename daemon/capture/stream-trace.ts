/**
 * What passes on a connection, one line for each MPA frame and each FPDU, read from the octets as
 * its two ends would read them.
 */
import { ChunkPool } from '../engine/chunk-pool.ts';
import { FpduReceiver } from '../engine/fpdu-receiver.ts';
import { type Crc32c, crc32c } from '../wire/crc32c.ts';
import { readDDPHeader, TAGGED_HEADER_BYTES, UNTAGGED_HEADER_BYTES } from '../wire/ddp-header.ts';
import { dumpStartupFrame, dumpULPDU } from '../wire/dump.ts';
import { OPCODES, RDMAPControl } from '../wire/rdmap-header.ts';
import {
  parseStartupFrame,
  type StartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
} from '../wire/startup-frame.ts';

/** Who sent it: the side that sent the SYN and the MPA Request, or the other. */
export type Sender = 'initiator' | 'responder';

/** What a line is about: an MPA frame, an FPDU, octets that cannot be read, a FIN or a reset. */
export type TraceKind = 'mpa' | 'fpdu' | 'error' | 'end';

/** An FPDU beside its line. */
export interface TracedFpdu {
  /** Name of the RDMAP message: 'Send', 'Read Request' …. */
  readonly opcode: string;
  /** Octets behind the DDP and RDMAP header. */
  readonly payloadBytes: number;
}

/** Takes the lines of a trace; `fpdu` for lines of that kind. */
export type TraceLine = (
  sender: Sender,
  kind: TraceKind,
  text: string,
  fpdu: TracedFpdu | undefined,
) => void;

/** How a trace is made. */
export interface StreamTraceOptions {
  readonly line: TraceLine;
  /** Computes CRCs; by default in JavaScript. */
  readonly crc32c?: Crc32c;
  /** Shared by many traces. */
  readonly pool?: ChunkPool;
}

interface Direction {
  /** Octets of a startup frame that has come in part. */
  held: Uint8Array;
  frame: StartupFrame | undefined;
  receiver: FpduReceiver | undefined;
  /** Nothing more can be read from it. */
  broken: boolean;
}

/** Traces one connection from its first octet on. */
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

  /** The next octets of one side, borrowed for the call. */
  take(sender: Sender, octets: Uint8Array): void {
    const direction = this.#directions[sender];
    if (direction.broken || octets.length === 0) return;
    if (direction.frame === undefined) this.#takeStartup(sender, direction, octets);
    else this.#takeFpdus(sender, direction, octets);
  }

  /** A FIN of one side. */
  finished(sender: Sender): void {
    this.#endOf(sender, 'FIN');
  }

  /** A reset, by one side. */
  reset(sender: Sender): void {
    this.#endOf(sender, 'RST');
  }

  /** No further octets of one side can be read: says why. */
  broken(sender: Sender, text: string): void {
    const direction = this.#directions[sender];
    if (direction.broken) return;
    direction.broken = true;
    direction.held = NO_OCTETS;
    direction.receiver?.release();
    this.#line(sender, 'error', text, undefined);
  }

  #endOf(sender: Sender, how: string): void {
    const { held, receiver } = this.#directions[sender];
    const cut = held.length > 0 || receiver?.midFpdu === true;
    this.#line(sender, 'end', cut ? `${how} inside a frame` : how, undefined);
  }

  #takeStartup(sender: Sender, direction: Direction, octets: Uint8Array): void {
    const kind: StartupFrameKind = sender === 'initiator' ? 'request' : 'reply';
    const all = joined(direction.held, octets);
    const needed = startupFrameBytesNeeded(all, all.length, kind);
    if (typeof needed === 'string') {
      this.broken(sender, `no MPA ${kind}: ${needed}`);
      return;
    }
    if (all.length < needed) {
      direction.held = all;
      return;
    }
    direction.held = NO_OCTETS;
    const frame = parseStartupFrame(all.subarray(0, needed), kind);
    if (typeof frame === 'string') {
      this.broken(sender, `no MPA ${kind}: ${frame}`);
      return;
    }
    direction.frame = frame;
    this.#line(sender, 'mpa', dumpStartupFrame(frame), undefined);
    if (all.length > needed) this.#takeFpdus(sender, direction, all.subarray(needed));
  }

  #takeFpdus(sender: Sender, direction: Direction, octets: Uint8Array): void {
    const receiver = direction.receiver ?? this.#createReceiver(sender);
    direction.receiver = receiver;
    const error = receiver.push(octets, 0, octets.length, {
      handleUlpdu: (ulpdu, start, length) => {
        const text = dumpULPDU(ulpdu, start, length);
        this.#line(sender, 'fpdu', text, tracedFpdu(ulpdu, start, length));
        return undefined;
      },
    });
    if (error !== undefined) this.broken(sender, `bad FPDU: ${error.text}`);
  }

  /** FPDUs come after both frames, which say how they are made (RFC 5044 §7.1.1). */
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

const NO_OCTETS = new Uint8Array(0);

function tracedFpdu(ulpdu: Uint8Array, start: number, length: number): TracedFpdu {
  const header = readDDPHeader(ulpdu, start, length);
  if (header === undefined) return { opcode: '', payloadBytes: 0 };
  const headerBytes = header.tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
  const opcode = header.ulp & RDMAPControl.opcode;
  const { name } = OPCODES[opcode] ?? { name: `Opcode ${opcode}` };
  return { opcode: name, payloadBytes: length - headerBytes };
}

function newDirection(): Direction {
  return { held: NO_OCTETS, frame: undefined, receiver: undefined, broken: false };
}

/** A copy of both, one behind the other: what is borrowed may not be kept. */
function joined(held: Uint8Array, octets: Uint8Array): Uint8Array {
  const all = new Uint8Array(held.length + octets.length);
  all.set(held);
  all.set(octets, held.length);
  return all;
}
