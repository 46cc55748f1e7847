/** The processes that a bench run needs, started when first asked for. */
import { queryDaemon } from '../../../verbs-api/client/daemon-link.ts';
import { BenchDaemon } from './bench-daemon.ts';
import { BenchWorker } from './channel.ts';
import type { ProgramPlace } from './program-pair.ts';
import type { RawTcpMethods } from './raw-tcp-worker.ts';
import type { RemoteMemory } from './verbs-traffic.ts';
import type { Meeting, ProviderChoice, VerbsMethods } from './verbs-worker.ts';

const ACTIVE_ADDRESS = '127.0.0.2';
const PASSIVE_ADDRESS = '127.0.0.3';

/** Two processes that talk over raw TCP. */
export interface RawPair {
  readonly active: BenchWorker<RawTcpMethods>;
  readonly passive: BenchWorker<RawTcpMethods>;
}

/** Two client processes of two RNICs, connected by one QP each. */
export interface VerbsPair {
  readonly active: BenchWorker<VerbsMethods>;
  readonly passive: BenchWorker<VerbsMethods>;
  /** Where the passive side listens. */
  readonly meeting: Meeting;
  /** The passive side's memory. */
  readonly remote: RemoteMemory;
}

/** Starts and ends the processes of a run. */
export class Rig {
  readonly #profileFolder: string | undefined;
  readonly #closers: (() => Promise<void>)[] = [];
  #raw: RawPair | undefined;
  #daemons: readonly [BenchDaemon, BenchDaemon] | undefined;
  #overDaemons: VerbsPair | undefined;
  #embedded: VerbsPair | undefined;

  /** `profileFolder`: where the daemons leave CPU profiles, or undefined for none. */
  constructor(profileFolder: string | undefined) {
    this.#profileFolder = profileFolder;
  }

  /** The raw TCP processes. */
  raw(): RawPair {
    this.#raw ??= {
      active: this.#worker<RawTcpMethods>('raw-tcp-worker.js', 'raw TCP client'),
      passive: this.#worker<RawTcpMethods>('raw-tcp-worker.js', 'raw TCP server'),
    };
    return this.#raw;
  }

  /** The two daemons: of the active and of the passive side. */
  async daemons(): Promise<readonly [BenchDaemon, BenchDaemon]> {
    if (this.#daemons === undefined) {
      const active = await this.#daemon(ACTIVE_ADDRESS);
      const passive = await this.#daemon(PASSIVE_ADDRESS);
      this.#daemons = [active, passive];
    }
    return this.#daemons;
  }

  /** Where the two ends of a program run: active and passive. */
  async places(): Promise<readonly [ProgramPlace, ProgramPlace]> {
    const [active, passive] = await this.daemons();
    return [active, passive];
  }

  /** The CRC32C implementation that the daemons use, and why. */
  async crcEngine(): Promise<string> {
    const [{ socketPath }] = await this.daemons();
    return (await queryDaemon('status', {}, { socketPath })).crcEngine;
  }

  /** Two client processes, each on its own daemon. */
  async overDaemons(): Promise<VerbsPair> {
    if (this.#overDaemons === undefined) {
      const [active, passive] = await this.daemons();
      this.#overDaemons = await this.#pair(
        { kind: 'daemon', socketPath: active.socketPath },
        { kind: 'daemon', socketPath: passive.socketPath },
      );
    }
    return this.#overDaemons;
  }

  /** Two processes, each with an RNIC in it. */
  async embedded(): Promise<VerbsPair> {
    this.#embedded ??= await this.#pair(
      { kind: 'embedded', address: ACTIVE_ADDRESS },
      { kind: 'embedded', address: PASSIVE_ADDRESS },
    );
    return this.#embedded;
  }

  /** Ends every process that was started, the last first. */
  async close(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close();
  }

  async #daemon(address: string): Promise<BenchDaemon> {
    const daemon = await BenchDaemon.start(address, this.#profileFolder);
    this.#closers.push(() => daemon.stop());
    return daemon;
  }

  #worker<M extends RawTcpMethods | VerbsMethods>(module: string, label: string): BenchWorker<M> {
    const worker = new BenchWorker<M>(new URL(module, import.meta.url), label);
    this.#closers.push(() => worker.close());
    return worker;
  }

  async #pair(activeChoice: ProviderChoice, passiveChoice: ProviderChoice): Promise<VerbsPair> {
    const active = this.#worker<VerbsMethods>('verbs-worker.js', `${activeChoice.kind} client`);
    const passive = this.#worker<VerbsMethods>('verbs-worker.js', `${passiveChoice.kind} server`);
    await active.call('open', activeChoice);
    await passive.call('open', passiveChoice);
    const meeting = await passive.call('listen', { address: PASSIVE_ADDRESS });
    const accepted = passive.call('accept', undefined);
    await Promise.all([accepted, active.call('connect', meeting)]);
    await active.call('fill', undefined);
    return { active, passive, meeting, remote: await accepted };
  }
}
