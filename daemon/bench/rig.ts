/** The processes of a bench run, started when first needed. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { shimVariables } from '../console/shim-environment.ts';
import { BenchDaemon } from './bench-daemon.ts';
import { BenchWorker } from './channel.ts';
import { NativeProbe } from './native-probe.ts';
import type { NativeMethods } from './native-worker.ts';
import type { NfsMethods } from './nfs-worker.ts';
import { ProgramGroup, type ProgramPlace } from './program-pair.ts';
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

/** Two processes that communicate over raw TCP. */
interface RawPair {
  readonly active: BenchWorker<RawTcpMethods>;
  readonly passive: BenchWorker<RawTcpMethods>;
}

interface RawUdpPair {
  readonly active: BenchWorker<RawUdpMethods>;
  readonly passive: BenchWorker<RawUdpMethods>;
}

interface RawSctpPair {
  readonly active: BenchWorker<RawSctpMethods>;
  readonly passive: BenchWorker<RawSctpMethods>;
}

/** Two client processes of two RNICs, connected by one QP each. */
export interface VerbsPair {
  readonly active: BenchWorker<VerbsMethods>;
  readonly passive: BenchWorker<VerbsMethods>;
  /** Where the passive side listens. */
  readonly meeting: Meeting;
  readonly remote: BenchMemory;
}

/** A client of the native bridge, over an emulated device, and the address of a peer to write to. */
interface NativePair {
  readonly active: BenchWorker<NativeMethods>;
  readonly meeting: Meeting;
  /** Variables with which another program finds the device. */
  readonly variables: Readonly<Record<string, string>>;
}

/** Two client processes, and daemons that serve only them. */
interface IdlePair {
  readonly pair: VerbsPair;
  readonly daemons: readonly [BenchDaemon, BenchDaemon];
}

/** A client of RPC over RDMA and its server, each on its own daemon. */
interface RpcPair {
  readonly active: BenchWorker<RpcMethods>;
  readonly passive: BenchWorker<RpcMethods>;
}

/** A client of NFS over RDMA and its server, each on its own daemon. */
interface NfsPair {
  readonly active: BenchWorker<NfsMethods>;
  readonly passive: BenchWorker<NfsMethods>;
}

/** Memory instead of a disk, if available: the RNIC is measured. */
const MEMORY_FOLDER = '/dev/shm';

/** Starts and ends the processes of a run. */
export class Rig {
  readonly #profileFolder: string | undefined;
  readonly #closers: (() => Promise<void>)[] = [];
  #programs: ProgramGroup | undefined;
  #raw: RawPair | undefined;
  #daemons: readonly [BenchDaemon, BenchDaemon] | undefined;
  #roce: BenchDaemon | undefined;
  #roceDaemons: readonly [BenchDaemon, BenchDaemon] | undefined;
  #rawUdp: RawUdpPair | undefined;
  #rawSctp: RawSctpPair | undefined;
  #overSctp: VerbsPair | undefined;
  #overDaemons: VerbsPair | undefined;
  #idle: IdlePair | undefined;
  #embedded: VerbsPair | undefined;
  #native: NativePair | undefined;
  #probe: NativeProbe | undefined;
  #rpc: RpcPair | undefined;
  #nfs: NfsPair | undefined;

  /** `profileFolder`: where the daemons write CPU profiles, or undefined. */
  constructor(profileFolder: string | undefined) {
    this.#profileFolder = profileFolder;
  }

  raw(): RawPair {
    this.#raw ??= {
      active: this.#worker<RawTcpMethods>('raw-tcp-worker.js', 'raw TCP client'),
      passive: this.#worker<RawTcpMethods>('raw-tcp-worker.js', 'raw TCP server'),
    };
    return this.#raw;
  }

  rawUdp(): RawUdpPair {
    this.#rawUdp ??= {
      active: this.#worker<RawUdpMethods>('raw-udp-worker.js', 'raw UDP client'),
      passive: this.#worker<RawUdpMethods>('raw-udp-worker.js', 'raw UDP server'),
    };
    return this.#rawUdp;
  }

  rawSctp(): RawSctpPair {
    this.#rawSctp ??= {
      active: this.#worker<RawSctpMethods>('raw-sctp-worker.js', 'raw SCTP client'),
      passive: this.#worker<RawSctpMethods>('raw-sctp-worker.js', 'raw SCTP server'),
    };
    return this.#rawSctp;
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

  /** Where both ends of a program run: a daemon with a RoCE device. */
  async rocePlace(): Promise<Required<ProgramPlace>> {
    this.#roce ??= await this.#roceDaemon(ROCE_ADDRESS);
    return this.#roce;
  }

  /** Where the two ends of a program run on RoCE devices of two daemons. */
  async rocePlaces(): Promise<readonly [Required<ProgramPlace>, Required<ProgramPlace>]> {
    if (this.#roceDaemons === undefined) {
      const [active, passive] = UDP_ADDRESSES;
      this.#roceDaemons = [await this.#roceDaemon(active), await this.#roceDaemon(passive)];
    }
    return this.#roceDaemons;
  }

  /** The version of the daemons, and the CRC32C implementation that they use. */
  async daemonFacts(): Promise<{ readonly version: string; readonly crcEngine: string }> {
    const [{ socketPath }] = await this.daemons();
    const { version, crcEngine } = await queryDaemon('status', {}, { socketPath });
    return { version, crcEngine };
  }

  /** The programs of the run, on its daemons or beside them. */
  programs(): ProgramGroup {
    if (this.#programs === undefined) {
      const programs = new ProgramGroup();
      this.#closers.push(() => programs.close());
      this.#programs = programs;
    }
    return this.#programs;
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

  /** Two client processes, on daemons with SCTP devices. */
  async overSctp(): Promise<VerbsPair> {
    if (this.#overSctp === undefined) {
      const [activeAddress, passiveAddress] = SCTP_ADDRESSES;
      const active = await this.#daemon(activeAddress, { kind: 'sctp' });
      const passive = await this.#daemon(passiveAddress, { kind: 'sctp' });
      this.#overSctp = await this.#pair(
        { kind: 'daemon', socketPath: active.socketPath },
        { kind: 'daemon', socketPath: passive.socketPath },
        passiveAddress,
      );
    }
    return this.#overSctp;
  }

  /** Two client processes, on unused daemons that collect garbage on demand. */
  async idle(): Promise<IdlePair> {
    if (this.#idle === undefined) {
      const [activeAddress, passiveAddress] = IDLE_ADDRESSES;
      const active = await this.#daemon(activeAddress, { collectable: true });
      const passive = await this.#daemon(passiveAddress, { collectable: true });
      const pair = await this.#pair(
        { kind: 'daemon', socketPath: active.socketPath },
        { kind: 'daemon', socketPath: passive.socketPath },
        passiveAddress,
      );
      this.#idle = { pair, daemons: [active, passive] };
    }
    return this.#idle;
  }

  /** Two processes, each with an embedded RNIC. */
  async embedded(): Promise<VerbsPair> {
    this.#embedded ??= await this.#pair(
      { kind: 'embedded', address: ACTIVE_ADDRESS },
      { kind: 'embedded', address: PASSIVE_ADDRESS },
    );
    return this.#embedded;
  }

  /** A process with the native bridge on the active side's device, and a peer on the passive side's. */
  async native(): Promise<NativePair> {
    if (this.#native === undefined) {
      const [{ socketPath }, passiveDaemon] = await this.daemons();
      const variables = shimVariables(socketPath, process.env);
      const module = 'native-worker.js';
      const active = this.#worker<NativeMethods>(module, 'native client', variables);
      const passive = this.#worker<NativeMethods>(module, 'native peer');
      await active.call('openNative', undefined);
      await passive.call('openDaemon', { socketPath: passiveDaemon.socketPath });
      const meeting = await passive.call('serve', { address: PASSIVE_ADDRESS });
      this.#native = { active, meeting, variables };
    }
    return this.#native;
  }

  /** A client of RPC over RDMA, connected to a server. */
  async rpc(): Promise<RpcPair> {
    if (this.#rpc === undefined) {
      const [activeDaemon, passiveDaemon] = await this.daemons();
      const active = this.#worker<RpcMethods>('rpc-worker.js', 'RPC client');
      const passive = this.#worker<RpcMethods>('rpc-worker.js', 'RPC server');
      await active.call('open', { socketPath: activeDaemon.socketPath });
      await passive.call('open', { socketPath: passiveDaemon.socketPath });
      await active.call('connect', await passive.call('serve', { address: PASSIVE_ADDRESS }));
      this.#rpc = { active, passive };
    }
    return this.#rpc;
  }

  /** A client of NFS, connected to a server of a new folder. */
  async nfs(): Promise<NfsPair> {
    if (this.#nfs === undefined) {
      const [activeDaemon, passiveDaemon] = await this.daemons();
      const parent = existsSync(MEMORY_FOLDER) ? MEMORY_FOLDER : tmpdir();
      const folder = mkdtempSync(join(parent, 'iwarpd-bench-'));
      this.#closers.push(async () => rmSync(folder, { recursive: true, force: true }));
      const active = this.#worker<NfsMethods>('nfs-worker.js', 'NFS client');
      const passive = this.#worker<NfsMethods>('nfs-worker.js', 'NFS server');
      await active.call('open', { socketPath: activeDaemon.socketPath });
      await passive.call('open', { socketPath: passiveDaemon.socketPath });
      const meeting = await passive.call('serve', { address: PASSIVE_ADDRESS, folder });
      await active.call('connect', meeting);
      this.#nfs = { active, passive };
    }
    return this.#nfs;
  }

  /** The C program equivalent to the native client. */
  probe(): NativeProbe {
    if (this.#probe === undefined) {
      const probe = NativeProbe.compile();
      this.#closers.push(async () => probe.close());
      this.#probe = probe;
    }
    return this.#probe;
  }

  /** Ends every process that was started, the last one first. */
  async close(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) await close();
  }

  async #roceDaemon(address: string): Promise<BenchDaemon> {
    return await this.#daemon(address, { kind: 'roce' });
  }

  async #daemon(
    address: string,
    options: { readonly kind?: 'roce' | 'sctp'; readonly collectable?: boolean } = {},
  ): Promise<BenchDaemon> {
    const profileFolder = this.#profileFolder;
    const daemon = await BenchDaemon.start({ address, profileFolder, ...options });
    this.#closers.push(() => daemon.stop());
    return daemon;
  }

  #worker<
    M extends
      | RawTcpMethods
      | RawUdpMethods
      | RawSctpMethods
      | VerbsMethods
      | NativeMethods
      | RpcMethods
      | NfsMethods,
  >(
    module: string,
    label: string,
    variables: Readonly<Record<string, string>> = {},
  ): BenchWorker<M> {
    const worker = new BenchWorker<M>(
      new URL(`../bench/${module}`, import.meta.url),
      label,
      variables,
    );
    this.#closers.push(() => worker.close());
    return worker;
  }

  async #pair(
    activeChoice: ProviderChoice,
    passiveChoice: ProviderChoice,
    address: string = PASSIVE_ADDRESS,
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
