/** The peer under test, over RoCE: opens connections for rows. */
import type { Offer } from './offer.ts';
import { type RequestFields, RoceConnection, RoceManagement } from './roce-connection.ts';
import { RoceLink } from './roce-link.ts';
import { NO_MEMORY, NotApplicable } from './row.ts';

/** Bytes of an advert of rping's server, unless it was started with another size. */
const RPING_BYTES = 64;

/** See the module's comment. */
export class RocePeer {
  readonly link: RoceLink;
  readonly management: RoceManagement;
  readonly port: number;
  readonly #patienceMs: number;
  readonly #open = new Set<RoceConnection>();

  /** Tests the service at `port` of the address `to`, from an address of this host. See `RoceLink`. */
  constructor(from: string, to: string, port: number, patienceMs: number) {
    this.link = new RoceLink(from, to);
    this.management = new RoceManagement(this.link, patienceMs);
    this.port = port;
    this.#patienceMs = patienceMs;
  }

  /** `given` overrides fields of the usual REQ. */
  async connect(given: RequestFields = {}): Promise<RoceConnection> {
    const { link, management, port } = this;
    const request = management.request(port, given);
    const connection = await RoceConnection.open(link, management, request, this.#patienceMs);
    this.#open.add(connection);
    return connection;
  }

  /** A connection and the memory that the peer offers. */
  async connectToMemory(): Promise<[RoceConnection, Offer]> {
    const connection = await this.connect();
    return [connection, offerOf(connection)];
  }

  /** Ends the connections of a row. */
  async reset(): Promise<void> {
    for (const connection of this.#open) await connection.close();
    this.#open.clear();
  }

  close(): void {
    this.management.close();
    this.link.close();
  }
}

/** Longest buffer that the peer reads and writes for the tester. */
export function pingBytesOf({ offer }: RoceConnection): number {
  return offer?.pingBytes ?? RPING_BYTES;
}

function offerOf({ offer }: RoceConnection): Offer {
  if (offer === undefined) throw new NotApplicable(NO_MEMORY);
  return offer;
}
