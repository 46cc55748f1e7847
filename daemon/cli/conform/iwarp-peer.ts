/** The peer under test, over iWARP on TCP: opens connections for rows. */
import { IwarpConnection, type RequestFrame } from './iwarp-connection.ts';
import type { Offer } from './offer.ts';
import { NO_MEMORY, NotApplicable } from './row.ts';

/** See the module's comment. */
export class IwarpPeer {
  readonly #patienceMs: number;
  readonly #place: {
    readonly from: string | undefined;
    readonly to: string;
    readonly port: number;
  };
  readonly #open = new Set<IwarpConnection>();

  /** Tests the listener at `port` of the address `to`. */
  constructor(from: string | undefined, to: string, port: number, patienceMs: number) {
    this.#place = { from, to, port };
    this.#patienceMs = patienceMs;
  }

  /** A TCP connection before startup. */
  async dial(): Promise<IwarpConnection> {
    const connection = await IwarpConnection.dial(this.#place, this.#patienceMs);
    this.#open.add(connection);
    return connection;
  }

  async connect(startup: RequestFrame = {}): Promise<IwarpConnection> {
    const connection = await this.dial();
    await connection.start(startup);
    return connection;
  }

  /** A connection and the memory that the peer offers. */
  async connectToMemory(): Promise<[IwarpConnection, Offer]> {
    const connection = await this.connect();
    const { offer } = connection;
    if (offer === undefined) throw new NotApplicable(NO_MEMORY);
    return [connection, offer];
  }

  /** Ends the connections of a row. */
  async reset(): Promise<void> {
    for (const connection of this.#open) connection.close();
    this.#open.clear();
  }

  close(): void {}
}
