/**
 * A hostile peer beside two communication managers: it sees their messages, and answers some in place of their
 * receivers. A connect to a peer that only asks for more time must still fail, and a disconnect that the
 * peer rejects must end.
 */
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import {
  CmAnswered,
  parseCmMessage,
  RejectReason,
  writeCmMessage,
} from '#daemon/roce/wire/cm-message';
import type { Prng } from '#test/support/prng';

const MORE_TIME_MICROS = 20_000_000;
/** How often it asks for more time: for two hours. */
const MORE_TIMES = 360;
/** The longest time to ask for. */
const SERVICE_TIMEOUT = 31;
/** In a REJ: of no particular message. */
const OTHER_MESSAGE = 2;
const STALLED_ONE_IN = 6;
const FORGOTTEN_ONE_IN = 3;

/** The managers that it attacks, by index. */
interface Victims {
  connectionOf(index: number, localCommId: number): CmConnection | undefined;
  /** Sends a message to a manager. */
  send(index: number, mad: Uint8Array, now: number): void;
}

export class HostilePeer {
  readonly #prng: Prng;
  readonly #victims: Victims;
  /** Whether it takes the REQs of a connection, and whether it takes its DREQs. */
  readonly #stalled = new Map<CmConnection, boolean>();
  readonly #forgotten = new Map<CmConnection, boolean>();
  #due: readonly { readonly at: number; readonly run: () => void }[] = [];

  constructor(prng: Prng, victims: Victims) {
    this.#prng = prng;
    this.#victims = victims;
  }

  get nextDue(): number {
    return this.#due.reduce((least, { at }) => Math.min(least, at), Number.POSITIVE_INFINITY);
  }

  act(now: number): void {
    const due = this.#due.filter(({ at }) => at <= now);
    this.#due = this.#due.filter(({ at }) => at > now);
    for (const { run } of due) run();
  }

  /** True if the peer of a connection only asks for more time. */
  stalls(connection: CmConnection): boolean {
    return this.#stalled.get(connection) === true;
  }

  /** True if it takes a message that a manager sent: its receiver does not get it. */
  takes(index: number, mad: Uint8Array, now: number): boolean {
    const message = parseCmMessage(mad);
    if (typeof message === 'string') return false;
    const { name, fields, transaction } = message;
    if (name !== 'REQ' && name !== 'DREQ') return false;
    const connection = this.#victims.connectionOf(index, fields.localCommId);
    if (connection === undefined) return false;
    if (name === 'REQ') return this.#stall(index, connection, now);
    if (!this.#forgets(index, connection)) return false;
    const { remoteCommId: localCommId, localCommId: remoteCommId } = fields;
    const rejection = {
      localCommId,
      remoteCommId,
      message: OTHER_MESSAGE,
      reason: RejectReason.invalidCommId,
    };
    this.#victims.send(index, writeCmMessage('REJ', transaction, rejection), now);
    return true;
  }

  #stall(index: number, connection: CmConnection, now: number): boolean {
    const known = this.#stalled.get(connection);
    if (known !== undefined) return known;
    const stalled = this.#prng.oneIn(STALLED_ONE_IN);
    this.#stalled.set(connection, stalled);
    if (stalled) this.#askForTime(index, connection, now, MORE_TIMES);
    return stalled;
  }

  #askForTime(index: number, connection: CmConnection, now: number, times: number): void {
    const { localCommId: remoteCommId, transaction, state } = connection;
    if (times === 0 || (state !== 'req-sent' && state !== 'mra-req-rcvd')) return;
    const numbers = { localCommId: 1, remoteCommId, message: CmAnswered.req };
    const mad = writeCmMessage('MRA', transaction, { ...numbers, serviceTimeout: SERVICE_TIMEOUT });
    this.#victims.send(index, mad, now);
    const at = now + MORE_TIME_MICROS;
    const run = (): void => this.#askForTime(index, connection, at, times - 1);
    this.#due = [...this.#due, { at, run }];
  }

  /**
   * True for both ends of a connection or for none. A peer whose end is not up yet would learn of the end from a
   * DREQ only.
   */
  #forgets(index: number, connection: CmConnection): boolean {
    const known = this.#forgotten.get(connection);
    if (known !== undefined) return known;
    const peer = this.#victims.connectionOf(1 - index, connection.remoteCommId);
    const forgotten = peer?.state === 'established' && this.#prng.oneIn(FORGOTTEN_ONE_IN);
    this.#forgotten.set(connection, forgotten);
    if (peer !== undefined) this.#forgotten.set(peer, forgotten);
    return forgotten;
  }
}
