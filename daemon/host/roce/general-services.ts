/**
 * QP 1 of each RoCE port: sends and receives the messages of connection management. A port with configured
 * addresses opens it at the start, others with the first listener or dial.
 */
import { QPType } from '#contract/verbs/enums';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { CmPath, CmPort } from '#daemon/roce/cm/cm-path';
import { vectorOf } from '#daemon/roce/cm/queue-pair-moves';
import { ManagementWire } from '#daemon/roce/transport/management';
import { GSI_QPN } from '#daemon/roce/wire/mad';
import type { PacketConnection, PacketQP } from './packet-connection.ts';
import type { PacketNetwork } from './packet-network.ts';
import type { ServicePort } from './packet-port.ts';

/** Handles a MAD that arrived at a port. */
type MadSink = (
  mad: Uint8Array,
  port: ServicePort,
  sourceGid: Uint8Array,
  destGid: Uint8Array,
) => void;

interface Interface {
  readonly port: ServicePort;
  readonly wire: ManagementWire;
  readonly connection: PacketConnection;
}

export class GeneralServices {
  readonly #network: PacketNetwork;
  readonly #onMad: MadSink;
  readonly #interfaces = new Map<CmPort, Interface>();
  /** Address handles as the network expects them, one per path. */
  readonly #addresses = new WeakMap<CmPath, { dgid: Uint8Array; vector: AddressVector }>();

  constructor(network: PacketNetwork, onMad: MadSink) {
    this.#network = network;
    this.#onMad = onMad;
  }

  /** Accepts MADs to this port from now on. */
  open(port: ServicePort): void {
    if (this.#interfaces.has(port)) return;
    const wire = new ManagementWire({
      handleMad: (mad, sourceGid, destGid) => this.#onMad(mad, port, sourceGid, destGid),
    });
    const qp: PacketQP = {
      qpn: GSI_QPN,
      type: QPType.ud,
      congested: false,
      takesLent: false,
      get wire() {
        return connection;
      },
      // This wire never fails.
      terminated() {},
    };
    const connection: PacketConnection = this.#network.connect(qp, port, wire);
    this.#interfaces.set(port, { port, wire, connection });
  }

  /** Sends a MAD from QP 1 of the path's port, which must be open, to QP 1 at its other end. */
  send(path: CmPath, mad: Uint8Array, now: number): void {
    const found = this.#interfaces.get(path.port);
    if (found === undefined) return;
    const { port, wire, connection } = found;
    // Also without a listener: the answer is then a rejection.
    const peer = port.peer(path.dgid);
    if (peer !== undefined) this.open(peer);
    let address = this.#addresses.get(path);
    if (address === undefined) {
      address = { dgid: path.dgid, vector: vectorOf(path) };
      this.#addresses.set(path, address);
    }
    if (wire.send(address, mad)) connection.pump(now);
    else connection.port.counters.undeliverable += 1;
  }

  /** MADs not sent yet, for simulations and tests. */
  get waiting(): number {
    let count = 0;
    for (const { wire } of this.#interfaces.values()) count += wire.waiting;
    return count;
  }
}
