/** Two daemons, each with a process of clients, and raw TCP for comparison. */
import { BenchWorker } from '#daemon/bench/channel';
import { Rig } from '#daemon/bench/rig';
import { type WatchedProcess, watchedDaemons } from './growth-series.ts';
import type { GrowthMethods, GrowthTarget } from './growth-worker.ts';

/** Options of the clients on both sides. */
interface PairOptions {
  readonly regionBytes: number;
  /** Maximum connections of each client. */
  readonly connections: number;
}

/** See the module's comment. Owns all of its processes. */
export class GrowthPair {
  readonly rig: Rig;
  readonly daemons: Awaited<ReturnType<Rig['daemons']>>;
  readonly #options: PairOptions;
  readonly #active: BenchWorker<GrowthMethods>;
  readonly #passive: BenchWorker<GrowthMethods>;
  readonly #targets: GrowthTarget[] = [];

  private constructor(rig: Rig, daemons: GrowthPair['daemons'], options: PairOptions) {
    this.rig = rig;
    this.daemons = daemons;
    this.#options = options;
    const module = new URL('growth-worker.js', import.meta.url);
    this.#active = new BenchWorker(module, 'active clients');
    this.#passive = new BenchWorker(module, 'passive clients');
  }

  /** Starts daemons and workers, without clients. */
  static async start(options: PairOptions): Promise<GrowthPair> {
    const rig = new Rig(undefined);
    try {
      return new GrowthPair(rig, await rig.daemons(), options);
    } catch (error) {
      await rig.close();
      throw error;
    }
  }

  /** All four processes. */
  get watched(): readonly WatchedProcess[] {
    const workers = [this.#active, this.#passive].flatMap(({ pid }, index) =>
      pid === undefined ? [] : [{ name: `the ${index === 0 ? 'active' : 'passive'} process`, pid }],
    );
    return [...watchedDaemons(this.daemons), ...workers];
  }

  /** Resident memory of the daemon that has more, in bytes. */
  residentBytes(): number {
    return Math.max(...this.daemons.map((daemon) => daemon.residentBytes()));
  }

  /** Descriptors of the daemon that has more. */
  openFiles(): number {
    return Math.max(...this.daemons.map((daemon) => daemon.openFiles()));
  }

  /** Opens clients until each side has `count`; returns the active side's seconds. */
  async openClients(count: number): Promise<number> {
    const [active, passive] = this.daemons;
    const all = { ...this.#options, count };
    await this.#passive.call('openClients', { ...all, socketPath: passive.socketPath });
    for (let client = this.#targets.length; client < count; client++) {
      this.#targets.push(await this.#passive.call('listen', { client, address: passive.address }));
    }
    return await this.#active.call('openClients', { ...all, socketPath: active.socketPath });
  }

  /** Makes connections from a client to its counterpart; returns the seconds taken. */
  async connect(client: number, count: number): Promise<number> {
    const target = this.#targets[client];
    if (target === undefined) throw new Error(`client ${client} has no counterpart`);
    const accepted = this.#passive.call('accept', { client, count });
    const seconds = this.#active.call('connect', { client, target, count });
    await Promise.all([accepted, seconds]);
    return await seconds;
  }

  /** Writes on all connections at once; returns the seconds taken. */
  async write(sizeBytes: number, batch: number, batches: number): Promise<number> {
    return await this.#active.call('write', { sizeBytes, batch, batches });
  }

  /** Ends all processes. */
  async close(): Promise<void> {
    await this.#active.close();
    await this.#passive.close();
    await this.rig.close();
  }
}
