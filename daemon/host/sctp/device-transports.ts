/**
 * The transports of a host's devices as one: the address of a port selects the transport. libusrsctp is
 * loaded only if a device uses it.
 */
import type { SctpTransportKind } from '#contract/verbs/attributes';
import { type HostClock, NetworkError } from '../links/network.ts';
import type { HostSctpTransport, SctpAddress, SctpPort, SctpPortOptions } from './association.ts';
import { KernelSctpTransport } from './kernel-transport.ts';
import type { MemoryDatagrams } from './memory-datagrams.ts';
import type { PacketTransport } from './sctp-network.ts';
import type { PacketCarrier, PacketFilter, PacketObserver } from './udp-carrier.ts';
import { UsrsctpTransport } from './usrsctp-transport.ts';

/** An SCTP device, as transports see it. */
interface TransportDevice {
  readonly addresses: readonly string[];
  readonly sctp: SctpTransportKind;
}

/** Faults do not apply to the kernel's packets. Captures show its messages as packets made here. */
export class DeviceTransports implements PacketTransport {
  readonly #kernels = new Map<string, KernelSctpTransport>();
  readonly #usrsctp: UsrsctpTransport;
  readonly #hasUsrsctp: boolean;

  /** `memory` carries all packets of an isolated host. Throws `NetworkError`. */
  constructor(clock: HostClock, devices: readonly TransportDevice[], memory?: MemoryDatagrams) {
    this.#usrsctp = new UsrsctpTransport(clock, {}, memory);
    for (const { addresses, sctp } of devices) {
      if (sctp === 'usrsctp') continue;
      if (memory !== undefined) {
        const text = "the kernel's SCTP needs the network of the host";
        throw new NetworkError('EOPNOTSUPP', text);
      }
      const kernel = new KernelSctpTransport(clock, sctp === 'kernel-udp');
      for (const address of addresses) this.#kernels.set(address, kernel);
    }
    this.#hasUsrsctp = devices.some(({ sctp }) => sctp === 'usrsctp');
  }

  open(address: string): void {
    this.#of(address).open(address);
  }

  hold(local: SctpAddress, options: SctpPortOptions): SctpPort {
    return this.#of(local.address).hold(local, options);
  }

  observe(observer: PacketObserver): void {
    if (this.#hasUsrsctp) this.#usrsctp.observe(observer);
    for (const kernel of this.#kernels.values()) kernel.observe(observer);
  }

  addFilter(filterOf: (carrier: PacketCarrier) => PacketFilter): void {
    if (this.#hasUsrsctp) this.#usrsctp.addFilter(filterOf);
  }

  close(): void {
    this.#usrsctp.close();
    for (const kernel of this.#kernels.values()) kernel.close();
  }

  #of(address: string): HostSctpTransport {
    return this.#kernels.get(address) ?? this.#usrsctp;
  }
}
