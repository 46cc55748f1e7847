/**
 * The receives of a connection with messages, and the credits of both ends.
 *
 * This end keeps `window` receives posted for messages and, with credits, `GRANTS` more for
 * messages that only carry credits. A message keeps its receive until the program takes it; the
 * receive is posted again before the credit is returned, so the peer never sends into a missing
 * receive. A grant is sent once half the window was taken, or with the next message. The peer can
 * thus have at most two grants in flight.
 */
import { Access } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { MR, PD, QP } from '#contract/verbs/provider';
import { HEADER_BYTES, type MessageOffer, parseHeader } from './message-framing.ts';

/** How a connection carries messages. */
export interface MessageOptions {
  /** Longest message that this end accepts, in bytes. Default 4096. */
  readonly bytes?: number | undefined;
  /** Messages that the peer may send ahead of this program. Default 32. */
  readonly window?: number | undefined;
  /**
   * Whether the ends exchange credits, which limit the messages in flight. Both must agree. Default
   * true. False for a peer that uses plain verbs: it then sees no header, and it must not send more
   * than `window` messages at once.
   */
  readonly credits?: boolean | undefined;
}

/** `MessageOptions` with defaults applied. */
export interface MessagePlan extends MessageOffer {
  readonly credits: boolean;
}

/** Messages copied out of their receives without credits: what a peer may make a program keep. */
const COPIES_MAX = 1024;
/** Receives, and sends, for messages that only carry credits. */
export const GRANTS = 2;
/** First work request id of the window's receives; requests use higher ids. */
export const RECEIVE_IDS = 1n << 62n;

const DEFAULT_BYTES = 4096;
const DEFAULT_WINDOW = 32;

interface Arrived {
  readonly slot: number;
  readonly start: number;
  readonly length: number;
  /** Already copied, and its receive posted again. */
  readonly copy: Uint8Array | undefined;
}

/** Applies the defaults. Returns undefined if messages are off. The options are checked already. */
export function messagePlan(
  options: MessageOptions | boolean | undefined,
): MessagePlan | undefined {
  if (options === undefined || options === false) return undefined;
  const given = options === true ? {} : options;
  const { bytes = DEFAULT_BYTES, window = DEFAULT_WINDOW, credits = true } = given;
  return { bytes, window, credits };
}

/** Receives that a plan needs. */
export function receivesOf(plan: MessagePlan): number {
  return plan.window + (plan.credits ? GRANTS : 0);
}

export class MessageWindow {
  readonly plan: MessagePlan;
  readonly #qp: QP;
  readonly #mr: MR;
  readonly #slotBytes: number;
  readonly #arrived: Arrived[] = [];
  /** The peer's window, once known; messages that this end may still send. */
  #peer: MessageOffer | undefined;
  #credits = 0;
  /** Receives that the program freed and that the peer does not know of yet. */
  #pendingCredits = 0;

  private constructor(plan: MessagePlan, qp: QP, mr: MR, slotBytes: number) {
    this.plan = plan;
    this.#qp = qp;
    this.#mr = mr;
    this.#slotBytes = slotBytes;
  }

  /**
   * Posts the receives; must be called before the connection is established. Errors as `PD.allocMR`.
   */
  static async open(plan: MessagePlan, pd: PD, qp: QP): Promise<MessageWindow> {
    const slotBytes = Math.max(plan.bytes + (plan.credits ? HEADER_BYTES : 0), 8);
    const count = receivesOf(plan);
    const mr = await pd.allocMR(slotBytes * count, Access.localWrite);
    const window = new MessageWindow(plan, qp, mr, slotBytes);
    for (let slot = 0; slot < count; slot += 1) window.#post(slot);
    return window;
  }

  /** Frees the memory of the receives, once the queue pair is closed. */
  close(): Promise<void> {
    return this.#mr.close();
  }

  /** The peer sent its window. */
  setPeer(peer: MessageOffer): void {
    this.#peer = peer;
    this.#credits = peer.window;
  }

  /** True if the connection uses credits. */
  get credited(): boolean {
    return this.plan.credits;
  }

  /** Messages that this end may send now; unlimited without credits. */
  get credits(): number {
    return this.credited ? this.#credits : Number.POSITIVE_INFINITY;
  }

  /** Longest message that the peer accepts, if known. */
  get peerBytes(): number {
    return this.#peer?.bytes ?? Number.POSITIVE_INFINITY;
  }

  /** A message is sent: takes a credit. Returns the number of credits to send with it. */
  spend(): number {
    this.#credits -= 1;
    return this.takePendingCredits();
  }

  /** Takes the credits to return now. */
  takePendingCredits(): number {
    const credits = this.#pendingCredits;
    this.#pendingCredits = 0;
    return credits;
  }

  /** True once half the window was taken since the last grant. */
  get grantDue(): boolean {
    return this.credited && this.#pendingCredits >= Math.ceil(this.plan.window / 2);
  }

  /** A receive completed. Throws EPROTO for a malformed message. */
  receive(slot: number, lengthBytes: number): void {
    const start = slot * this.#slotBytes;
    if (!this.credited) {
      if (this.#arrived.length >= COPIES_MAX) {
        // It keeps its receive: if the peer sends more, none is left, which ends the connection.
        this.#arrived.push({ slot, start, length: lengthBytes, copy: undefined });
        return;
      }
      const copy = this.#mr.buffer.slice(start, start + lengthBytes);
      this.#arrived.push({ slot, start, length: lengthBytes, copy });
      this.#post(slot);
      return;
    }
    const header = parseHeader(this.#mr.buffer.subarray(start, start + lengthBytes));
    this.#credits += header.credits;
    if (this.#credits > (this.#peer?.window ?? 0)) {
      throw new VerbsError('EPROTO', 'the peer gave more credits than its window has');
    }
    if (!header.carriesMessage) {
      this.#post(slot);
      return;
    }
    const length = lengthBytes - HEADER_BYTES;
    this.#arrived.push({ slot, start: start + HEADER_BYTES, length, copy: undefined });
  }

  /** Takes the oldest message, as a copy that belongs to the caller, and frees its receive. */
  take(): Uint8Array | undefined {
    const arrived = this.#arrived.shift();
    if (arrived === undefined) return undefined;
    if (arrived.copy !== undefined) return arrived.copy;
    const message = this.#mr.buffer.slice(arrived.start, arrived.start + arrived.length);
    try {
      this.#post(arrived.slot);
      this.#pendingCredits += 1;
    } catch {
      // The connection closed in the meantime: messages that arrived before are still delivered.
    }
    return message;
  }

  #post(slot: number): void {
    const sgList = [this.#mr.sge(slot * this.#slotBytes, this.#slotBytes)];
    this.#qp.postRecv({ wrId: RECEIVE_IDS + BigInt(slot), sgList });
  }
}
