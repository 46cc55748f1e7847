/** The processes of a bench run, started when first needed. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { shimVariables } from '../console/shim-environment.ts';
import { BenchDaemon } from './bench-daemon.ts';
import { BenchWorker, type WorkerMethods } from './channel.ts';
import { NativeProbe } from './native-probe.ts';
import type { NativeMethods } from './native-worker.ts';
import type { NfsMethods } from './nfs-worker.ts';
import { ProgramGroup } from './program-pair.ts';
import type { RawSctpMethods } from './raw-sctp-worker.ts';
import type { RawTcpMethods } from './raw-tcp-worker.ts';
import type { RawUdpMethods } from './raw-udp-worker.ts';
import type { RpcMethods } from './rpc-worker.ts';
import type { BenchMemory } from './verbs-traffic.ts';
import type { Meeting, ProviderChoice, VerbsMethods } from './verbs-worker.ts';

const ACTIVE_ADDRESS = '127.0.0.2';
const PASSIVE_ADDRESS = '127.0.0.3';
const ROCE_ADDRESS = '127.0.0.4';
/** Addresses of the daemons whose memory is measured. */
const IDLE_ADDRESSES = ['127.0.0.11', '127.0.0.12'] as const;
/** Addresses of two daemons whose RoCE devices communicate over UDP, and of raw UDP. */
export const UDP_ADDRESSES = ['127.0.0.5', '127.0.0.6'] as const;

/** Addresses of two daemons with SCTP devices. */
const SCTP_ADDRESSES = ['127.0.0.7', '127.0.0.8'] as const;
export const RAW_SCTP_ADDRESSES = ['127.0.0.9', '127.0.0.10'] as const;

/** Two processes that run the same worker. */
interface WorkerPair<M extends WorkerMethods> {
  readonly active: BenchWorker<M>;
  readonly passive: BenchWorker<M>;
}

/** Two client processes of two RNICs, connected by one QP each. */
export interface VerbsPair extends WorkerPair<VerbsMethods> {
  /** The address at which the passive side listens. */
  readonly meeting: Meeting;
  readonly remote: BenchMemory;
}

type DaemonPair = readonly [BenchDaemon, BenchDaemon];

interface DaemonKind {
  readonly kind?: 'roce' | 'sctp';
  readonly collectable?: boolean;
}

/** In memory, if available: the bench measures the RNIC, not a disk. */
const MEMORY_FOLDER = '/dev/shm';

/** Starts and ends the processes of a run. */
export class Rig {
  readonly #profileFolder: string | undefined;
  readonly #closers: (() => Promise<void>)[] = [];
  #closed = false;

  /** `profileFolder`: where the daemons write CPU profiles, or undefined. */
  constructor(profileFolder: string | undefined) {
    this.#profileFolder = profileFolder;
  }

  readonly raw = lazy(() => this.#workers<RawTcpMethods>('raw-tcp-worker.js', 'raw TCP'));
  readonly rawUdp = lazy(() => this.#workers<RawUdpMethods>('raw-udp-worker.js', 'raw UDP'));
  readonly rawSctp = lazy(() => this.#workers<RawSctpMethods>('raw-sctp-worker.js', 'raw SCTP'));

  /** The two daemons: of the active and of the passive side. */
  readonly daemons = lazy(() => this.#daemonPair([ACTIVE_ADDRESS, PASSIVE_ADDRESS]));
  /** A daemon with a RoCE device: both ends of a program run on it. */
  readonly roceDaemon = lazy(() => this.#daemon(ROCE_ADDRESS, { kind: 'roce' }));
  /** Two daemons with RoCE devices. */
  readonly roceDaemons = lazy(() => this.#daemonPair(UDP_ADDRESSES, { kind: 'roce' }));

  /** Two client processes, each on its own daemon. */
  readonly overDaemons = lazy(async () => this.#clients(await this.daemons()));

  /** Two client processes, on daemons with SCTP devices. */
  readonly overSctp = lazy(async () => {
    return this.#clients(await this.#daemonPair(SCTP_ADDRESSES, { kind: 'sctp' }));
  });

  /** Two client processes, and their daemons, which nothing else uses and which collect garbage on demand. */
  readonly idle = lazy(async () => {
    const daemons = await this.#daemonPair(IDLE_ADDRESSES, { collectable: true });
    return { pair: await this.#clients(daemons), daemons };
  });

  /** Two processes, each with an embedded RNIC. */
  readonly embedded = lazy(() =>
    this.#pair(
      { kind: 'embedded', address: ACTIVE_ADDRESS },
      { kind: 'embedded', address: PASSIVE_ADDRESS },
      PASSIVE_ADDRESS,
    ),
  );

  /**
   * A process that uses the active side's device through the native bridge, the address of a peer on the
   * passive side's device, and the variables by which another program finds the device.
   */
  readonly native = lazy(async () => {
    const [{ socketPath }, passiveDaemon] = await this.daemons();
    const variables = shimVariables(socketPath, process.env);
    const module = 'native-worker.js';
    const active = this.#worker<NativeMethods>(module, 'native client', variables);
    const passive = this.#worker<NativeMethods>(module, 'native peer');
    await active.call('openNative', undefined);
    await passive.call('openDaemon', { socketPath: passiveDaemon.socketPath });
    const meeting = await passive.call('serve', { address: PASSIVE_ADDRESS });
    return { active, meeting, variables };
  });

  /** A client of RPC over RDMA, connected to a server. */
  readonly rpc = lazy(async () => {
    const [activeDaemon, passiveDaemon] = await this.daemons();
    const { active, passive } = this.#workers<RpcMethods>('rpc-worker.js', 'RPC');
    await active.call('open', { socketPath: activeDaemon.socketPath });
    await passive.call('open', { socketPath: passiveDaemon.socketPath });
    await active.call('connect', await passive.call('serve', { address: PASSIVE_ADDRESS }));
    return { active, passive };
  });

  /** A client of NFS, connected to a server of a new folder. */
  readonly nfs = lazy(async () => {
    const [activeDaemon, passiveDaemon] = await this.daemons();
    const parent = existsSync(MEMORY_FOLDER) ? MEMORY_FOLDER : tmpdir();
    const folder = mkdtempSync(join(parent, 'iwarpd-bench-'));
    this.#onClose(async () => rmSync(folder, { recursive: true, force: true }));
    const { active, passive } = this.#workers<NfsMethods>('nfs-worker.js', 'NFS');
    await active.call('open', { socketPath: activeDaemon.socketPath });
    await passive.call('open', { socketPath: passiveDaemon.socketPath });
    const meeting = await passive.call('serve', { address: PASSIVE_ADDRESS, folder });
    await active.call('connect', meeting);
    return { active, passive };
  });

  /** The programs of the run, on its daemons or without a daemon. */
  readonly programs = lazy(() => {
    const programs = new ProgramGroup();
    this.#onClose(() => programs.close());
    return programs;
  });

  /** The C program equivalent to the native client. */
  readonly probe = lazy(() => {
    const probe = NativeProbe.compile();
    this.#onClose(async () => probe.close());
    return probe;
  });

  /** The version of the daemons, and the CRC32C implementation that they use. */
  async daemonFacts(): Promise<{ readonly version: string; readonly crcEngine: string }> {
    const [{ socketPath }] = await this.daemons();
    const { version, crcEngine } = await queryDaemon('status', {}, { socketPath });
    return { version, crcEngine };
  }

  /** Ends every process that was started, the last one first, and those that a measurement still starts. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const close of this.#closers.splice(0).reverse()) await close();
  }

  #onClose(close: () => Promise<void>): void {
    if (this.#closed) void close().catch(() => undefined);
    else this.#closers.push(close);
  }

  async #daemonPair(
    [active, passive]: readonly [string, string],
    kind?: DaemonKind,
  ): Promise<DaemonPair> {
    return [await this.#daemon(active, kind), await this.#daemon(passive, kind)];
  }

  async #daemon(address: string, kind: DaemonKind = {}): Promise<BenchDaemon> {
    const profileFolder = this.#profileFolder;
    const daemon = await BenchDaemon.start({ address, profileFolder, ...kind });
    this.#onClose(() => daemon.stop());
    return daemon;
  }

  #workers<M extends WorkerMethods>(module: string, label: string): WorkerPair<M> {
    return {
      active: this.#worker<M>(module, `${label} client`),
      passive: this.#worker<M>(module, `${label} server`),
    };
  }

  #worker<M extends WorkerMethods>(
    module: string,
    label: string,
    variables?: Readonly<Record<string, string>>,
  ): BenchWorker<M> {
    const url = new URL(`../bench/${module}`, import.meta.url);
    const worker = new BenchWorker<M>(url, label, variables);
    this.#onClose(() => worker.close());
    return worker;
  }

  #clients([active, passive]: DaemonPair): Promise<VerbsPair> {
    return this.#pair(
      { kind: 'daemon', socketPath: active.socketPath },
      { kind: 'daemon', socketPath: passive.socketPath },
      passive.address,
    );
  }

  async #pair(
    activeChoice: ProviderChoice,
    passiveChoice: ProviderChoice,
    address: string,
  ): Promise<VerbsPair> {
    const active = this.#worker<VerbsMethods>('verbs-worker.js', `${activeChoice.kind} client`);
    const passive = this.#worker<VerbsMethods>('verbs-worker.js', `${passiveChoice.kind} server`);
    await active.call('open', activeChoice);
    await passive.call('open', passiveChoice);
    const meeting = await passive.call('listen', { address });
    const accepted = passive.call('accept', undefined);
    await Promise.all([accepted, active.call('connect', meeting)]);
    await active.call('fill', undefined);
    return { active, passive, meeting, remote: await accepted };
  }
}

/** Calls `make` once, when its result is first needed. */
function lazy<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
