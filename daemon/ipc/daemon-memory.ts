/** The memory of a client of the daemon: shared by descriptor, reached in the best way there is. */
import { randomBytes } from 'node:crypto';
import { SystemCallError } from '../../native-bridge/libc/libc.ts';
import { ProcessMemory, yamaScope } from '../../native-bridge/libc/process-vm.ts';
import { SharedMemory } from '../../native-bridge/libc/shared-memory.ts';
import type { PeerCredentials } from '../../native-bridge/libc/unix-socket.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { TOKEN_BYTES, tokenText } from '../../verbs-api/contract/ipc-frames.ts';
import type { MemoryTier } from '../../verbs-api/contract/provider.ts';
import { AgentBacking } from './agent-backing.ts';
import type { AgentChannel } from './agent-channel.ts';
import { ProcessBacking } from './process-backing.ts';
import type { ClientMemory, ProcessAllocation, SharedAllocation } from './verbs/client-memory.ts';

/** Shared memory that a client made and has not mapped yet; each holds a descriptor. */
const UNMAPPED_MAX = 256;

/** Tiers that the daemon may use, best first. */
export const ALL_TIERS: readonly MemoryTier[] = ['shared', 'process_vm', 'agent'];

/** See the module's comment. */
export class DaemonMemory implements ClientMemory {
  readonly sharedTier = {
    tier: 'shared',
    reason: 'allocated by the daemon, mapped by both',
  } as const;
  /** The client's agent, once it connected. */
  agent: AgentChannel | undefined;
  readonly #credentials: PeerCredentials;
  readonly #tiers: readonly MemoryTier[];
  readonly #workEpoch: () => number;
  readonly #unmapped = new Map<string, SharedMemory>();
  #process: ProcessMemory | undefined;
  /** The client no longer frees memory itself: it goes, or the daemon does. */
  #leaving = false;

  /** `workEpoch`: see `AgentBacking`. */
  constructor(credentials: PeerCredentials, tiers: readonly MemoryTier[], workEpoch: () => number) {
    this.#credentials = credentials;
    this.#tiers = tiers;
    this.#workEpoch = workEpoch;
  }

  createShared(lengthBytes: number): SharedAllocation {
    if (this.#unmapped.size >= UNMAPPED_MAX) {
      throw new VerbsError('ENOMEM', `quota: ${UNMAPPED_MAX} shared memories wait to be mapped`);
    }
    const memory = createSharedMemory(lengthBytes);
    const token = tokenText(randomBytes(TOKEN_BYTES));
    this.#unmapped.set(token, memory);
    const release = () => {
      this.#unmapped.delete(token);
      if (!this.#leaving) memory.clear();
      memory.release();
    };
    return { mapping: { token, lengthBytes }, view: memory.view, release };
  }

  /**
   * The descriptor behind a token, for `send`, or undefined when the client has no such memory or
   * mapped it before: it is sent once, and closed then.
   */
  sendDescriptor(token: string, send: (descriptor: number | undefined) => void): void {
    const memory = this.#unmapped.get(token);
    send(memory?.descriptor);
    memory?.closeDescriptor();
    this.#unmapped.delete(token);
  }

  openProcess(address: bigint, lengthBytes: number): ProcessAllocation {
    const start = Number(address);
    const obstacle = this.#processObstacle(start, lengthBytes);
    if (obstacle === undefined && this.#process !== undefined) {
      const backing = new ProcessBacking(this.#process, start, lengthBytes);
      const reason = `process_vm_readv reaches pid ${this.#credentials.pid}`;
      return { backing, reason, release: () => backing.release() };
    }
    const { agent } = this;
    if (!this.#tiers.includes('agent')) {
      throw new VerbsError('EOPNOTSUPP', `${obstacle}; the agent tier is switched off`);
    }
    if (agent === undefined || !agent.open) {
      throw new VerbsError('EOPNOTSUPP', `${obstacle}; the client has no agent`);
    }
    const backing = new AgentBacking(agent, start, lengthBytes, this.#workEpoch);
    return { backing, reason: obstacle ?? '', release: () => backing.release() };
  }

  /**
   * From here on memory is released because client or daemon goes, not because the client freed
   * it: what was delivered stays readable to a client that outlives the daemon.
   */
  leave(): void {
    this.#leaving = true;
  }

  /** Gives back what does not belong to an allocation. */
  close(): void {
    this.#process?.close();
    this.#process = undefined;
  }

  /** Why the process's memory cannot be reached, or undefined when it can. EFAULT for a bad range. */
  #processObstacle(start: number, lengthBytes: number): string | undefined {
    const { pid, uid } = this.#credentials;
    if (!this.#tiers.includes('process_vm')) return 'process_vm is switched off';
    if (pid === 0) return 'process_vm: the client is in another PID namespace';
    // A program of another user that starts a privileged one must not lend us its pid.
    if (uid !== process.getuid?.()) return 'process_vm: the client belongs to another user';
    try {
      this.#process ??= new ProcessMemory(pid);
    } catch (error) {
      if (error instanceof SystemCallError) return `process_vm: ${error.message}`;
      throw error;
    }
    const refusal = this.#process.probe(start, lengthBytes);
    if (refusal === 'EFAULT') {
      throw new VerbsError('EFAULT', `the client has no ${lengthBytes} octets at this address`);
    }
    if (refusal === undefined) return undefined;
    const scope = yamaScope();
    const yama = scope === undefined ? '' : ` (yama ptrace_scope=${scope})`;
    return `process_vm_readv refused: ${refusal}${yama}`;
  }
}

function createSharedMemory(lengthBytes: number): SharedMemory {
  try {
    return SharedMemory.create('iwarpd', lengthBytes);
  } catch (error) {
    if (error instanceof SystemCallError) throw new VerbsError('ENOMEM', error.message);
    throw error;
  }
}
