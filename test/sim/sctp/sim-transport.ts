/** The SCTP of a simulated host: ports at its own addresses. There are no packets to capture or corrupt. */
import { NetworkError } from '#daemon/host/links/network';
import type { SctpAddress, SctpPort, SctpPortOptions } from '#daemon/host/sctp/association';
import type { PacketTransport } from '#daemon/host/sctp/sctp-network';
import type { MessageNetwork } from './message-network.ts';

/** See the module's comment. */
export class SimTransport implements PacketTransport {
  readonly #network: MessageNetwork;
  readonly #addresses: readonly string[];

  constructor(network: MessageNetwork, addresses: readonly string[]) {
    this.#network = network;
    this.#addresses = addresses;
  }

  hold(local: SctpAddress, options: SctpPortOptions): SctpPort {
    this.open(local.address);
    return this.#network.hold(local, options);
  }

  open(address: string): void {
    if (this.#addresses.includes(address)) return;
    throw new NetworkError('EADDRNOTAVAIL', `${address} belongs to another host`);
  }

  observe(): void {}
  addFilter(): void {}
  close(): void {}
}
