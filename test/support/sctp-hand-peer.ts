/** The peer of an SCTP device, whose DDP messages are all written out by hand. */
import { expect } from 'vitest';
import { bytesOf, compactHex, hexOf } from './hex.ts';
import { quiet } from './patience.ts';
import { type RecordedEnd, until } from './sctp-pair.ts';

/** Payload protocols. */
export const SEGMENT = 16;
export const CONTROL = 17;
const SILENCE_MS = 100;

/** A message as `HandPeer` receives it. */
export const message = (protocol: number, hex: string) => `${protocol} ${compactHex(hex)}`;

/** One stream of an association: sends messages, and reads the host's as `protocol hex`. */
export class HandPeer {
  readonly end: RecordedEnd;
  readonly streamId: number;
  #read = 0;

  constructor(end: RecordedEnd, streamId = 0) {
    this.end = end;
    this.streamId = streamId;
  }

  /** Another stream of the association. */
  on(streamId: number): HandPeer {
    return new HandPeer(this.end, streamId);
  }

  say(payloadProtocol: number, hex: string): this {
    const kind = { payloadProtocol, unordered: true, acknowledgeAtOnce: true };
    expect(this.end.association.send(this.streamId, kind, bytesOf(hex))).toBe(true);
    return this;
  }

  /** The host's next message. */
  async receive(): Promise<string> {
    const at = this.#read;
    await until('a message of the host', () => this.#messages.length > at);
    this.#read += 1;
    const received = this.#messages[at];
    // SCTP-10-01
    expect(received?.unordered).toBe(true);
    return `${received?.payloadProtocol} ${hexOf(received?.bytes ?? new Uint8Array(0))}`;
  }

  /** Checks that nothing more has arrived, or arrives for a while. */
  async silence(): Promise<void> {
    await quiet(SILENCE_MS);
    expect(this.#messages.length).toBe(this.#read);
  }

  async ended(): Promise<string | undefined> {
    await until('the end of the association', () => this.end.user.end !== undefined);
    return this.end.user.end?.kind;
  }

  get #messages() {
    return this.end.user.messages.filter(({ streamId }) => streamId === this.streamId);
  }
}
