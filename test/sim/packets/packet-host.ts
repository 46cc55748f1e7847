/** A simulated host with RoCE devices: a real `RnicHost` on virtual time and simulated networks. */
import { TapHub } from '#daemon/capture/tap-hub';
import { DescriptorsInFlight } from '#daemon/clients/descriptors-in-flight';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { EndedClients } from '#daemon/clients/objects/ended-clients';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { chooseCrcEngine } from '#daemon/host/crc-engine';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { KernelServer } from '#daemon/kernel/kernel-server';
import { Refusals } from '#daemon/refusals/refusals';
import type { QP } from '#daemon/rnic/queue-pair';
import { Prng } from '#test/support/prng';
import { VirtualClock, type VirtualTime } from '#test/support/virtual-time';
import { must } from '../rules.ts';
import type { HostNetwork, SimNetwork } from '../sim-network.ts';
import type { DatagramNetwork, UdpHost } from './datagram-network.ts';
import { PacketAccounts } from './packet-accounts.ts';
import type { PacketPlan } from './packet-plan.ts';

const CRC_ENGINE = chooseCrcEngine();
/** Steps from one deep check to the next. */
const DEEP_CHECK_EVERY = 64;
/** Addresses of a host whose device serves all of them. */
const OPEN_ADDRESSES = 3;
/** Timers of a host: the loop's, and the one that flushes queue pairs in error. */
const ALARMS_MAX = 2;
/** Messages of connection management that wait while the kernel has no room. */
const MADS_MAX = 64;
/** Timers of notifications that a fault delays. */
const LATE_WAKES_MAX = 256;

/** Shared by everything in a world. */
export interface PacketSetting {
  readonly prng: Prng;
  readonly plan: PacketPlan;
  readonly time: VirtualTime;
  readonly streams: SimNetwork;
  readonly datagrams: DatagramNetwork;
  /** Logs each step; undefined when the run is not logged. */
  readonly log: ((text: string) => void) | undefined;
}

export class PacketHost {
  readonly name: string;
  readonly index: number;
  /** Present addresses; those of an open device may change. */
  readonly addresses: string[];
  readonly lostAddresses: string[] = [];
  /** The address of its iWARP device, if it has one. */
  readonly iwarpAddress: string | undefined;
  readonly host: RnicHost;
  readonly directory: DeviceDirectory;
  readonly clock: VirtualClock;
  readonly udp: UdpHost;
  readonly network: HostNetwork;
  /** An injected fault may fail its connections. */
  faulty = false;
  wakesLost = false;
  /** Its addresses have changed: commands that name a lost one fail. */
  moved = false;
  readonly accounts = new PacketAccounts();
  #kernel: KernelServer | undefined;
  #checks = 0;
  #closed = false;

  constructor(world: PacketSetting, index: number) {
    const { plan, time, prng } = world;
    this.index = index;
    this.name = `host ${index}`;
    this.clock = new VirtualClock(time, new Prng(prng.next()));
    const count = plan.open ? OPEN_ADDRESSES : plan.devicesPerHost;
    this.addresses = Array.from({ length: count }, (_, number) => {
      return plan.six ? `fd00::${index + 1}:${number + 1}` : `10.0.${index}.${number + 1}`;
    });
    this.iwarpAddress = plan.iwarp ? `10.1.${index}.1` : undefined;
    const named = plan.open ? [[]] : this.addresses.map((address) => [address]);
    if (this.iwarpAddress !== undefined) this.addresses.push(this.iwarpAddress);
    this.udp = world.datagrams.host(this.addresses);
    this.network = world.streams.host(this.addresses);
    const tap = plan.tapped ? new TapHub() : undefined;
    const iwarp = this.iwarpAddress;
    this.host = new RnicHost({
      system: {
        clock: this.clock,
        network: this.network,
        outward: true,
        addresses: () => this.addresses.map((address) => ({ address, interfaceName: 'eth0' })),
      },
      roce: { ...ROCE_NETWORK, udp: this.udp },
      devices: [
        ...named.map((addresses, device) => ({
          name: `roce${device}`,
          addresses,
          transport: 'roce' as const,
        })),
        ...(iwarp === undefined ? [] : [{ name: 'iwarp0', addresses: [iwarp] }]),
      ],
      crcEngine: CRC_ENGINE,
      observer: {
        ...(tap === undefined ? {} : { tap }),
        notice: ({ kind, text }) => world.log?.(`  ${this.name} ${kind}: ${text}`),
      },
    });
    this.directory = new DeviceDirectory(this.host, undefined);
    tap?.packets.watch({ packet: () => undefined });
  }

  /** Serves programs that use rdma-core. */
  get kernel(): KernelServer {
    this.#kernel ??= new KernelServer({
      directory: this.directory,
      quotas: DEFAULT_QUOTAS,
      memoryTiers: [],
      nextClientId: () => 1,
      pair: () => {
        throw new Error('a simulated process has no descriptors');
      },
      inFlight: new DescriptorsInFlight(undefined),
      ended: new EndedClients(() => ''),
      refusals: new Refusals(() => ''),
      note: () => undefined,
    });
    return this.#kernel;
  }

  /** Present addresses of its RoCE devices. */
  get roceAddresses(): readonly string[] {
    return this.addresses.filter((address) => address !== this.iwarpAddress);
  }

  queuePair(device: string, qpn: number): QP | undefined {
    return this.host.devices.find(({ name }) => name === device)?.nic.findQP(qpn);
  }

  /** Lists its addresses, as it does once a second. */
  list(): void {
    if (!this.#closed) this.host.checkAddresses();
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.host.close();
  }

  /** Call after each step. True once every few steps: `check` is due. */
  checkDue(): boolean {
    // Work deferred to the next turn may be reported in part.
    if (this.clock.turns > 0) return false;
    this.#checks += 1;
    return this.#checks % DEEP_CHECK_EVERY === 0;
  }

  /** Checks its objects and bounds. Its programs have `ids` ids. */
  check(ids: number): void {
    this.host.assertDeepInvariants();
    this.#kernel?.assertDeepInvariants();
    const { queued, deferred, nicEffects, unsettledQPs } = this.host.heldCounts();
    for (const [what, held] of Object.entries({ queued, deferred, nicEffects, unsettledQPs })) {
      must(held === 0, 'bounded', () => `${held} ${what} of ${this.name} between two turns`);
    }
    const held = this.host.heldByRoce();
    const most = { ibEffects: 0, roceMads: MADS_MAX, roceIds: ids, roceQPs: ids } as const;
    for (const what of ['ibEffects', 'roceMads', 'roceIds', 'roceQPs'] as const) {
      const count = held?.[what] ?? 0;
      must(count <= most[what], 'bounded', () => {
        return `${count} ${what} of ${this.name}, whose programs have ${ids} ids`;
      });
    }
    const alarms = ALARMS_MAX + (this.wakesLost ? LATE_WAKES_MAX : 0);
    // Each connection of iWARP may have one, for a fault that delays it.
    const connections = [...this.host.conduits()].length;
    must(this.clock.alarms <= alarms + connections, 'bounded', () => {
      return `${this.clock.alarms} alarms of ${this.name}`;
    });
    const sockets = this.udp.sockets.size;
    const groups = this.host.devices.length * GROUPS_MAX;
    must(
      sockets <= this.addresses.length + this.lostAddresses.length + groups,
      'bounded',
      () => `${sockets} sockets`,
    );
  }

  /** Checks that nothing is left once every program is gone. */
  checkEmpty(): void {
    for (const { nic } of this.host.devices) {
      for (const [kind, count] of Object.entries(nic.liveCounts())) {
        must(count === 0, 'left', `${count} ${kind} of ${this.name}`);
      }
    }
    for (const [what, count] of Object.entries(this.host.heldCounts())) {
      must(count === 0, 'left', `${count} ${what} of ${this.name}`);
    }
    for (const [what, count] of Object.entries(this.host.heldByRoce() ?? {})) {
      must(count === 0, 'left', `${count} ${what} of ${this.name}`);
    }
    must(this.host.connections().length === 0, 'left', `connections of ${this.name}`);
    must(this.network.ports.length === 0, 'left', `ports of TCP of ${this.name}`);
    const groups = [...this.udp.sockets].filter(({ address }) => !this.addresses.includes(address));
    must(groups.length === 0, 'left', `${groups.length} sockets of groups or lost addresses`);
  }

  /** True once nothing is held for connections that have ended. */
  get forgotten(): boolean {
    for (const _ of this.host.conduits()) return false;
    return Object.values(this.host.heldByRoce() ?? {}).every((count) => count === 0);
  }

  /** Like `checkEmpty`, after the host has closed. */
  checkClosed(): void {
    must(this.clock.alarms === 0, 'left', `${this.clock.alarms} alarms of ${this.name}`);
    must(this.udp.sockets.size === 0, 'left', `${this.udp.sockets.size} sockets of ${this.name}`);
    if (this.moved && this.accounts.grouped) return;
    const ports = this.host.devices.flatMap(({ rocePort }) => rocePort?.counters ?? []);
    this.accounts.check(this.name, ports, this.udp);
  }
}

/** Multicast groups of a run. */
export const GROUPS_MAX = 3;
