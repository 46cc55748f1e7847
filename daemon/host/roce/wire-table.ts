/** The wires of the queue pairs of all ports, by port and queue pair number. */
import { assert } from '#base/assert';
import type { PacketConnection } from './packet-connection.ts';
import type { PacketPort } from './packet-port.ts';

export class WireTable {
  readonly #connections = new Map<PacketPort, Map<number, PacketConnection>>();

  /** Adds the wire of a queue pair without one. */
  add(connection: PacketConnection): void {
    const { port, qp } = connection;
    let ofPort = this.#connections.get(port);
    if (ofPort === undefined) {
      ofPort = new Map();
      this.#connections.set(port, ofPort);
    }
    assert(!ofPort.has(qp.qpn), 'queue pair has a wire already');
    ofPort.set(qp.qpn, connection);
  }

  delete({ port, qp }: PacketConnection): void {
    this.#connections.get(port)?.delete(qp.qpn);
  }

  find(port: PacketPort, qpn: number): PacketConnection | undefined {
    return this.#connections.get(port)?.get(qpn);
  }

  *all(): Iterable<PacketConnection> {
    for (const ofPort of this.#connections.values()) yield* ofPort.values();
  }

  /** Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const [port, connections] of this.#connections) {
      for (const [qpn, connection] of connections) {
        const { qp, alive } = connection;
        assert(alive && qp.qpn === qpn && connection.port === port, 'wire under a wrong QP');
        assert(qp.wire === connection, 'queue pair with another wire');
      }
    }
  }
}
