/** A simulated host: a real `RnicHost` on virtual time and a virtual network, and its programs. */
import { QPState } from '#contract/verbs/enums';
import { TapHub, type TapWatcher } from '#daemon/capture/tap-hub';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import type { Conduit } from '#daemon/host/conduit';
import { chooseCrcEngine } from '#daemon/host/crc-engine';
import { MemoryNetwork } from '#daemon/host/links/memory-network';
import { RnicHost } from '#daemon/host/rnic-host';
import { sctpCarrier } from '#daemon/host/sctp/sctp-carrier';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import type { QP } from '#daemon/rnic/queue-pair';
import { Prng } from '../support/prng.ts';
import { VirtualClock, type VirtualTime } from '../support/virtual-time.ts';
import { checkHostBounds } from './bounds.ts';
import type { Plan } from './plan.ts';
import { must } from './rules.ts';
import { SimTransport } from './sctp/sim-transport.ts';
import type { SimProcesses } from './sim-copies.ts';
import type { HostNetwork, SimNetwork } from './sim-network.ts';

const CRC_ENGINE = chooseCrcEngine();
/** Overwrites the start of a released chunk. */
const POISON = 0xdb;
const POISONED_BYTES = 2048;
/** Bytes that a stream may lend at the same time. */
const LENT_BYTES_MAX = 20_000;
/** Steps from one deep check to the next. */
const DEEP_CHECK_EVERY = 16;

/** Overwrites released chunks: code that still reads one sees wrong bytes. */
export class PoisoningPool extends ChunkPool {
  override release(chunk: Uint8Array): void {
    chunk.fill(POISON, 0, POISONED_BYTES);
    super.release(chunk);
  }
}

/** Chunks kept from run to run: a small run would spend most of its time allocating them. */
const SPARE_CHUNKS: Uint8Array[] = [];

/** Watches all traffic and checks that the tap reports each link in order. */
class Watcher implements TapWatcher {
  readonly #open = new Set<number>();

  wants(): boolean {
    return true;
  }
  opened(link: number): void {
    must(!this.#open.has(link), 'agree', 'the tap reported a link as opened twice');
    this.#open.add(link);
  }
  joined(link: number): void {
    this.#expect(link);
  }
  bytes(link: number): void {
    this.#expect(link);
  }
  finished(link: number): void {
    this.#expect(link);
  }
  closed(link: number): void {
    this.#expect(link);
    this.#open.delete(link);
  }
  skipped(): void {}

  #expect(link: number): void {
    must(this.#open.has(link), 'agree', 'the tap reported a link that is not open');
  }
}

/** Shared by everything in a world. */
export interface Setting {
  readonly prng: Prng;
  readonly plan: Plan;
  readonly time: VirtualTime;
  readonly network: SimNetwork;
  /** Logs each step; undefined when the run is not logged. */
  readonly log: ((text: string) => void) | undefined;
}

/** See the module's comment. */
export class SimHost {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly host: RnicHost;
  readonly directory: DeviceDirectory;
  readonly clock: VirtualClock;
  readonly network: HostNetwork;
  readonly pool: ChunkPool;
  /** Carries connections within the host, if the plan says so. */
  readonly #memory: MemoryNetwork;
  /** Memory of its programs, if their agents copy. */
  readonly processes: SimProcesses = new Map();
  /** An injected fault may fail its connections. */
  faulty = false;
  /** A fault may delay input. */
  slowed = false;
  wakesLost = false;
  overruns = false;
  #checks = 0;
  /** Queue pairs with a connection, as the last check found them. */
  readonly #attached: unknown[] = [];

  constructor(world: Setting, index: number) {
    const { plan, time, prng } = world;
    this.name = `host ${index}`;
    this.clock = new VirtualClock(time, new Prng(prng.next()));
    this.addresses = Array.from(
      { length: plan.devicesPerHost },
      (_, device) => `10.0.${index}.${device + 1}`,
    );
    const tap = plan.tapped ? new TapHub() : undefined;
    this.pool = new PoisoningPool({
      allocate: (bytes) => SPARE_CHUNKS.pop() ?? new Uint8Array(bytes),
    });
    this.network = world.network.host(this.addresses);
    const own = {
      has: (address: string) => this.addresses.includes(address),
      anyAcceptsIPv4: false,
    };
    this.#memory = new MemoryNetwork(this.network, this.clock, own);
    this.host = new RnicHost({
      system: { clock: this.clock, network: plan.memoryLinks ? this.#memory : this.network },
      devices: this.addresses.map((address, device) => ({
        name: `rnic${device}`,
        // Only a device of TCP may have all addresses.
        addresses: plan.devicesPerHost === 1 && plan.carriers[0] === 'tcp' ? [] : [address],
        wire: plan.wire,
        ...(plan.carriers[device] === 'sctp' ? { lowerLayer: 'sctp' as const } : {}),
      })),
      carriers: [sctpCarrier(() => new SimTransport(world.network.messages, this.addresses))],
      crcEngine: CRC_ENGINE,
      pool: this.pool,
      ...(plan.turnShareBytes === undefined ? {} : { turnShareBytes: plan.turnShareBytes }),
      observer: {
        ...(tap === undefined ? {} : { tap }),
        notice: ({ kind, text }) => world.log?.(`  ${this.name} ${kind}: ${text}`),
      },
    });
    this.directory = new DeviceDirectory(this.host, undefined);
    if (plan.copiesFromBytes !== undefined) {
      for (const { nic } of this.host.devices)
        nic.setLentBytes(plan.copiesFromBytes, LENT_BYTES_MAX);
    }
    tap?.watch(new Watcher());
  }

  queuePair(device: string, qpn: number): QP | undefined {
    return this.host.devices.find(({ name }) => name === device)?.nic.findQP(qpn);
  }

  /**
   * Checks that queue pairs, endpoints and conduits agree. Returns true once every few steps, for
   * checks that visit every object: at each step they would dominate a run.
   */
  check(): boolean {
    // Work deferred to the next turn may be half reported.
    if (this.clock.turns > 0) return false;
    this.#checks += 1;
    const deep = this.#checks % DEEP_CHECK_EVERY === 0;
    if (deep) this.host.assertDeepInvariants();
    const attached = this.#attached;
    attached.length = 0;
    for (const conduit of this.host.conduits()) {
      this.#checkConduit(conduit);
      const { phase, qp } = conduit.endpoint;
      if (phase === 'established' || phase === 'closing') attached.push(qp);
    }
    for (const { nic } of this.host.devices) {
      for (const qp of nic.listQPs()) {
        const running = qp.state === QPState.RTS || qp.state === QPState.SQD;
        must(
          !running || attached.includes(qp),
          'agree',
          () => `QP ${qp.qpn} runs without a connection`,
        );
      }
    }
    must(this.pool.inUseCount >= 0, 'agree', 'a chunk was released twice');
    return deep;
  }

  /** Checks its bounds. Programs of this host have `ids` connection ids. */
  checkBounds(ids: number): void {
    const { name, pool, clock } = this;
    const { alarms } = clock;
    const wakesLate = this.wakesLost;
    checkHostBounds(this.host, { name, chunks: pool.inUseCount, alarms, ids, wakesLate });
  }

  #checkConduit({ endpoint, stream }: Conduit): void {
    const { phase, qp } = endpoint;
    const own = qp === undefined ? undefined : this.queuePair(endpoint.device.name, qp.qpn);
    const state = own === qp ? own?.state : undefined;
    const running = state === QPState.RTS || state === QPState.SQD;
    if (phase === 'established' || phase === 'closing') {
      must(qp !== undefined, 'agree', `a connection is ${phase} without a queue pair`);
      must(!running || qp?.wire === stream, 'agree', 'a queue pair runs on another stream');
    }
    if (phase === 'over')
      must(qp === undefined, 'agree', 'a queue pair is bound to a connection that is over');
  }

  /** Checks that nothing is left once every program is gone and every connection is over. */
  checkEmpty(): void {
    must([...this.host.conduits()].length === 0, 'left', `conduits of ${this.name}`);
    must(this.host.connections().length === 0, 'left', `endpoints of ${this.name}`);
    must(this.pool.inUseCount === 0, 'left', () => {
      return `${this.pool.inUseCount} chunks of ${this.name}`;
    });
    must(this.#memory.carrier.inUseCount === 0, 'left', () => {
      return `${this.#memory.carrier.inUseCount} buffers of memory links of ${this.name}`;
    });
    for (const { nic } of this.host.devices) {
      must(nic.listQPs().length === 0, 'left', `queue pairs of ${this.name}`);
      for (const [kind, count] of Object.entries(nic.liveCounts())) {
        must(count === 0, 'left', `${count} ${kind} of ${this.name}`);
      }
    }
    for (const [what, count] of Object.entries(this.host.heldCounts())) {
      must(count === 0, 'left', `${count} ${what} of ${this.name}`);
    }
    must(this.network.ports.length === 0, 'left', () => {
      return `ports of ${this.name}: ${this.network.ports.join(', ')}`;
    });
  }

  /** As `checkEmpty`, after the host has closed. */
  checkClosed(): void {
    must(this.clock.alarms === 0, 'left', `${this.clock.alarms} alarms of ${this.name}`);
    for (let chunk = 0; chunk < 2; chunk += 1) {
      if (SPARE_CHUNKS.length < 8) SPARE_CHUNKS.push(this.pool.acquire());
    }
  }
}
