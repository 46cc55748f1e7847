/**
 * The memory of the processes that use the emulated kernel. A region belongs to the process that
 * registered it, which may be a forked child of the process that opened the device.
 */
import { assert } from '#base/assert';
import type { MemoryTier } from '#contract/verbs/provider';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { DaemonMemory } from '../clients/objects/daemon-memory.ts';

/** A file through which a process uses its memory. */
export interface MemoryFile {
  readonly number: number;
  /** Changes whenever a queue pair of the file may have abandoned work; see `AgentBacking`. */
  workEpoch(): number;
}

/** Memory of one process, and its connections to each file. */
interface Holding {
  readonly memory: DaemonMemory;
  readonly connections: Map<MemoryFile, number>;
}

/**
 * Faults to report for one process: a program whose memory is gone may continue for a long time, and
 * the first addresses suffice to find the cause.
 */
const FAULTS_REPORTED = 8;

export class ProcessMemories {
  readonly #tiers: readonly MemoryTier[];
  readonly #holdings = new Map<string, Holding>();

  readonly #onFault: (peer: PeerProcess, address: number) => void;

  /** `onFault` is called with addresses at which registered memory of a process is inaccessible. */
  constructor(tiers: readonly MemoryTier[], onFault: (peer: PeerProcess, address: number) => void) {
    this.#tiers = tiers;
    this.#onFault = onFault;
  }

  /** A connection of the process to `user` was opened. */
  hold(peer: PeerProcess, user: MemoryFile): void {
    const key = keyOf(peer, user);
    const holding = this.#holdings.get(key) ?? this.#open(key, peer);
    holding.connections.set(user, (holding.connections.get(user) ?? 0) + 1);
  }

  /** A connection was closed; after the last one, the process's memory is no longer reachable. */
  release(peer: PeerProcess, user: MemoryFile): void {
    const key = keyOf(peer, user);
    const holding = this.#holdings.get(key);
    if (holding === undefined) return;
    const left = (holding.connections.get(user) ?? 0) - 1;
    if (left > 0) holding.connections.set(user, left);
    else holding.connections.delete(user);
    if (holding.connections.size > 0) return;
    this.#holdings.delete(key);
    holding.memory.close();
  }

  /** The memory of a process that has a connection to `user`. */
  find(peer: PeerProcess, user: MemoryFile): DaemonMemory | undefined {
    return this.#holdings.get(keyOf(peer, user))?.memory;
  }

  /** True if the process has no agent yet and an agent would help. */
  wantsAgent(memory: DaemonMemory): boolean {
    return this.#tiers.includes('agent') && memory.agent?.open !== true;
  }

  /** Throws `InvariantError` if its counts are wrong. */
  assertInvariants(): void {
    for (const { memory, connections } of this.#holdings.values()) {
      assert(connections.size > 0, 'memory held without a connection');
      for (const count of connections.values()) assert(count > 0, 'count of connections <= 0');
      memory.assertInvariants();
    }
  }

  #open(key: string, peer: PeerProcess): Holding {
    const connections = new Map<MemoryFile, number>();
    const workEpoch = (): number => {
      let sum = 0;
      for (const user of connections.keys()) sum += user.workEpoch();
      return sum;
    };
    const memory = new DaemonMemory(peer, this.#tiers, workEpoch, { takesCopies: true });
    let faults = 0;
    memory.onFault = (address) => {
      faults += 1;
      if (faults <= FAULTS_REPORTED) this.#onFault(peer, address);
    };
    // Checked again, with an error, when a region is registered.
    memory.bindProcess();
    const holding = { memory, connections };
    this.#holdings.set(key, holding);
    return holding;
  }
}

/** A process in another PID namespace has no visible pid, so each of its files is its own key. */
function keyOf(peer: PeerProcess, user: MemoryFile): string {
  return peer.pid === 0 ? `${peer.uid} file ${user.number}` : `${peer.uid} pid ${peer.identity}`;
}
