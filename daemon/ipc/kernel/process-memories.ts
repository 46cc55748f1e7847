/**
 * The memory of the processes that use the emulated kernel. A region belongs to the process that
 * registered it, which may be a forked child of the one that opened the device.
 */
import type { PeerCredentials } from '../../../native-bridge/libc/unix-socket.ts';
import type { MemoryTier } from '../../../verbs-api/contract/provider.ts';
import { DaemonMemory } from '../daemon-memory.ts';

/** A file through which a process uses its memory. */
export interface MemoryUser {
  readonly number: number;
  /** Changes whenever a queue pair of the file may have given up work; see `AgentBacking`. */
  workEpoch(): number;
}

/** Memory of one process, and its connections to each file. */
interface Holding {
  readonly memory: DaemonMemory;
  readonly connections: Map<MemoryUser, number>;
}

/** See the module's comment. */
export class ProcessMemories {
  readonly #tiers: readonly MemoryTier[];
  readonly #holdings = new Map<string, Holding>();

  constructor(tiers: readonly MemoryTier[]) {
    this.#tiers = tiers;
  }

  /** A connection of the process to `user` is there. */
  hold(credentials: PeerCredentials, user: MemoryUser): void {
    const key = keyOf(credentials, user);
    const holding = this.#holdings.get(key) ?? this.#open(key, credentials);
    holding.connections.set(user, (holding.connections.get(user) ?? 0) + 1);
  }

  /** A connection is gone; with the last one, nothing reaches the process's memory any more. */
  release(credentials: PeerCredentials, user: MemoryUser): void {
    const key = keyOf(credentials, user);
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
  find(credentials: PeerCredentials, user: MemoryUser): DaemonMemory | undefined {
    return this.#holdings.get(keyOf(credentials, user))?.memory;
  }

  /** True when the process has no agent yet and one could help. */
  wantsAgent(memory: DaemonMemory): boolean {
    return this.#tiers.includes('agent') && memory.agent?.open !== true;
  }

  #open(key: string, credentials: PeerCredentials): Holding {
    const connections = new Map<MemoryUser, number>();
    const workEpoch = (): number => {
      let sum = 0;
      for (const user of connections.keys()) sum += user.workEpoch();
      return sum;
    };
    const memory = new DaemonMemory(credentials, this.#tiers, workEpoch);
    const holding = { memory, connections };
    this.#holdings.set(key, holding);
    return holding;
  }
}

/** A process in another PID namespace shows no pid; then each file stands for itself. */
function keyOf({ pid, uid }: PeerCredentials, user: MemoryUser): string {
  return pid === 0 ? `${uid} file ${user.number}` : `${uid} pid ${pid}`;
}
