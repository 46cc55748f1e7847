/** The memory of a client: shared by descriptor, or accessed by the best tier that works. */
import { randomBytes } from 'node:crypto';
import { assert } from '#base/assert';
import { TOKEN_BYTES, tokenText } from '#contract/protocol/ipc-frames';
import { VerbsError } from '#contract/verbs/errors';
import type { MemoryTier } from '#contract/verbs/provider';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { SystemCallError } from '#native-bridge/libc/libc';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import {
  hasProcessEnded,
  hasThread,
  ProcessMemory,
  sharesPidNamespace,
  sleepsInCopy,
  yamaScope,
} from '#native-bridge/libc/process-vm';
import type { SharedMemory } from '#native-bridge/libc/shared-memory';
import { programName } from '../client-identity.ts';
import { AgentBacking } from './agent-backing.ts';
import type { AgentChannel } from './agent-channel.ts';
import type { ClientMemory, ProcessAllocation, SharedAllocation } from './client-memory.ts';
import { CopyRing } from './copy-ring.ts';
import { type LimitName, takeFor, type UserShare } from './daemon-budget.ts';
import { type CopyLoop, DirectCopies } from './direct-copies.ts';
import { IncomingCopies } from './incoming-copies.ts';
import { ProcessBacking } from './process-backing.ts';
import { createMapped, RingRegions } from './ring-regions.ts';
import { SlowMemory } from './slow-memory.ts';
import { stalledPrograms } from './stalled-programs.ts';

/** Shared allocations that a client has not mapped yet; each holds a descriptor. */
const UNMAPPED_MAX = 256;

/** The charges for a ring of orders. */
const COPY_CHARGES: readonly LimitName[] = ['mappings', 'descriptors'];

/** Tiers that the daemon may use, best first. */
export const ALL_TIERS: readonly MemoryTier[] = ['shared', 'process_vm', 'agent'];

interface DaemonMemoryOptions {
  readonly share?: UserShare | undefined;
  readonly takesCopies?: boolean;
}

export class DaemonMemory implements ClientMemory {
  readonly sharedTier = {
    tier: 'shared',
    reason: 'allocated by the daemon, mapped by both',
  } as const;
  /** Called with an address at which registered memory could not be accessed. */
  onFault: (address: number) => void = () => undefined;
  #agent: AgentChannel | undefined;
  readonly #peer: PeerProcess;
  readonly #slow: SlowMemory;
  readonly #tiers: readonly MemoryTier[];
  readonly #workEpoch: () => number;
  /** True if nothing ends the client's registrations without waiting for copies into them. */
  readonly takesCopies: boolean;
  readonly incoming = new IncomingCopies();
  readonly #unmapped = new Map<string, SharedMemory>();
  readonly #share: UserShare | undefined;
  readonly #regions: RingRegions;
  #process: ProcessMemory | undefined;
  #copies: DirectCopies | undefined;
  #offered = false;
  /** Name of the process's program. */
  #program = '';
  /**
   * The client or the daemon is shutting down: a release no longer means that the client freed memory.
   */
  #leaving = false;

  /**
   * `workEpoch`: see `AgentBacking`. `share`, if any, is charged for mappings and descriptors. `takesCopies`: see
   * the field.
   */
  constructor(
    peer: PeerProcess,
    tiers: readonly MemoryTier[],
    workEpoch: () => number,
    { share, takesCopies = false }: DaemonMemoryOptions = {},
  ) {
    this.takesCopies = takesCopies;
    this.#peer = peer;
    this.#slow = new SlowMemory(peer.pid);
    this.#tiers = tiers;
    this.#workEpoch = workEpoch;
    this.#share = share;
    this.#regions = new RingRegions(newToken, share);
  }

  /** The client's agent, once it has connected. */
  get agent(): AgentChannel | undefined {
    return this.#agent;
  }

  set agent(agent: AgentChannel | undefined) {
    this.#agent = agent;
    if (agent === undefined) return;
    agent.onFault = (address) => this.onFault(address);
  }

  /** Copies that the client's agent can make out of its memory. */
  get copies(): DirectCopies | undefined {
    return this.#copies;
  }

  /** True if an agent could copy from this client's memory, but none has been asked for. */
  takeOffer(): boolean {
    if (this.#offered || this.#agent !== undefined || this.#process === undefined) return false;
    this.#offered = true;
    // Under Yama, programs let the daemon trace them, but not each other.
    const forbids = (yamaScope() ?? 0) > 0;
    return !forbids && this.#tiers.includes('agent') && sharesPidNamespace(this.#peer.pid);
  }

  /**
   * Makes the ring of orders for the client's agent, once; `share`, if any, is charged for its mapping and for
   * another descriptor of the process. Returns undefined if the agent cannot copy: it names processes by their
   * numbers, which must be the daemon's. Throws the limit's error, and ENOMEM.
   */
  openCopies(loop: CopyLoop, share: UserShare | undefined): CopyRing | undefined {
    const agent = this.#agent;
    const memory = this.#process;
    const { pid } = this.#peer;
    if (agent === undefined || this.#copies !== undefined || memory === undefined) return undefined;
    if (!sharesPidNamespace(pid)) return undefined;
    const open = (): OpenedRing => orNoMemory(() => openRing(memory));
    const { ring, descriptor } = takeFor(share, COPY_CHARGES, open);
    const copies = new DirectCopies(ring, loop, {
      get agentOpen() {
        return agent.open;
      },
      get ended() {
        // An agent also ends when its process runs another program.
        return hasProcessEnded(descriptor) || (!agent.open && !hasThread(pid, ring.thread));
      },
      get asleep() {
        return sleepsInCopy(pid, ring.thread);
      },
      wake: () => agent.wakeCopies(),
      release: () => {
        closeDescriptor(descriptor);
        for (const name of COPY_CHARGES) share?.give(name);
      },
    });
    this.#copies = copies;
    agent.onCopied = () => copies.handleCopied();
    agent.onClosed = () => copies.handleClosed();
    return ring;
  }

  /**
   * Opens the client's process while its connection is open: it may be gone when its memory is first
   * needed. Returns why that memory cannot be accessed directly, or undefined.
   */
  bindProcess(): string | undefined {
    const { pid, uid } = this.#peer;
    if (!this.#tiers.includes('process_vm')) return 'process_vm is switched off';
    if (pid === 0) return 'process_vm: the client is in another PID namespace';
    // A program of another user could start a privileged one under the same pid.
    if (uid !== process.getuid?.()) return 'process_vm: the client belongs to another user';
    try {
      if (this.#process === undefined) {
        this.#process = this.#openMemory(pid);
        this.#program = programName(pid);
      }
      return undefined;
    } catch (error) {
      if (error instanceof SystemCallError) return `process_vm: ${error.message}`;
      throw error;
    }
  }

  #openMemory(pid: number): ProcessMemory {
    const memory = new ProcessMemory(pid, this.#peer.openDescriptor());
    memory.onFault = (address) => this.onFault(address);
    return memory;
  }

  createShared(lengthBytes: number): SharedAllocation {
    if (this.#unmapped.size >= UNMAPPED_MAX) {
      throw new VerbsError(
        'ENOMEM',
        `limit reached: ${UNMAPPED_MAX} shared allocations are not mapped yet`,
      );
    }
    const memory = orNoMemory(() => createMapped(lengthBytes, this.#share));
    const token = newToken();
    this.#unmapped.set(token, memory);
    let held = true;
    const release = () => {
      if (!held) return;
      held = false;
      this.#closeDescriptor(token, memory);
      if (!this.#leaving) memory.clear();
      memory.release();
      this.#share?.give('mappings');
    };
    return { mapping: { token, lengthBytes }, view: memory.view, release };
  }

  createRing(lengthBytes: number): SharedAllocation {
    return orNoMemory(() => this.#regions.create(lengthBytes)) ?? this.createShared(lengthBytes);
  }

  /**
   * Passes the descriptor for a token to `send`; undefined if the client has no such memory or has
   * received it. That of a buffer is sent once, then closed; those of rings, which are few, each time
   * that the client asks.
   */
  sendDescriptor(token: string, send: (descriptor: number | undefined) => void): void {
    const shared = this.#regions.descriptorOf(token);
    if (shared !== undefined) {
      send(shared);
      return;
    }
    const memory = this.#unmapped.get(token);
    send(memory?.descriptor);
    if (memory !== undefined) this.#closeDescriptor(token, memory);
  }

  /** Closes the descriptor of memory that was sent or released; another call does nothing. */
  #closeDescriptor(token: string, memory: SharedMemory): void {
    if (!this.#unmapped.delete(token)) return;
    memory.closeDescriptor();
    this.#share?.give('descriptors');
  }

  openProcess(address: bigint, lengthBytes: number): ProcessAllocation {
    const start = Number(address);
    const obstacle = this.#processObstacle(start, lengthBytes);
    if (obstacle === undefined && this.#process !== undefined) {
      const backing = new ProcessBacking(this.#process, start, lengthBytes, this);
      const reason = `process_vm_readv reaches pid ${this.#peer.pid}`;
      return { backing, reason, ...handlesOf(backing) };
    }
    const { agent } = this;
    if (!this.#tiers.includes('agent')) {
      throw new VerbsError('EOPNOTSUPP', `${obstacle}; the agent tier is switched off`);
    }
    if (agent === undefined || !agent.open) {
      throw new VerbsError('EOPNOTSUPP', `${obstacle}; the client has no agent`);
    }
    const backing = new AgentBacking(agent, start, lengthBytes, this.#workEpoch);
    return { backing, reason: obstacle ?? '', ...handlesOf(backing) };
  }

  /**
   * Memory released from now on is not cleared: a client that outlives the daemon can still read
   * delivered data.
   */
  leave(): void {
    this.#leaving = true;
  }

  /** Throws `InvariantError` if its counts are wrong. */
  assertInvariants(): void {
    assert(this.#unmapped.size <= UNMAPPED_MAX, 'too many unmapped shared allocations');
    this.agent?.assertInvariants();
    this.#copies?.assertInvariants();
  }

  /** Releases memory that belongs to no allocation. */
  close(): void {
    if (this.#process?.takeStalled() === true) stalledPrograms.note(this.#program);
    this.#copies?.close();
    for (const maker of this.incoming.makers) maker.dropAllInto(this.incoming);
    this.#process?.close();
    this.#process = undefined;
    this.#regions.close();
  }

  /** Why the memory cannot be accessed directly, or undefined if it can. EFAULT for a bad range. */
  #processObstacle(start: number, lengthBytes: number): string | undefined {
    const obstacle = this.bindProcess();
    if (obstacle !== undefined || this.#process === undefined) return obstacle;
    const slow = this.#slow.reason(start, lengthBytes);
    if (slow !== undefined && this.#tiers.includes('agent')) {
      return `process_vm: ${slow}; a copy could block the daemon`;
    }
    if (stalledPrograms.suspects(this.#program) && this.#tiers.includes('agent')) {
      return 'process_vm: memory of an earlier process of this program did not answer; a copy could block the daemon';
    }
    const refusal = this.#process.probe(start, lengthBytes);
    if (refusal === 'EFAULT') {
      throw new VerbsError(
        'EFAULT',
        `${lengthBytes} bytes at this address exceed the address space`,
      );
    }
    if (refusal === undefined) return undefined;
    const scope = yamaScope();
    const yama = scope === undefined ? '' : ` (yama ptrace_scope=${scope})`;
    return `process_vm_readv refused: ${refusal}${yama}`;
  }
}

function handlesOf(
  backing: ProcessBacking | AgentBacking,
): Pick<ProcessAllocation, 'move' | 'release'> {
  return { move: (address) => backing.move(address), release: () => backing.release() };
}

/** A ring, and a pidfd of the process that outlives its memory. */
interface OpenedRing {
  readonly ring: CopyRing;
  readonly descriptor: number;
}

/** Throws `SystemCallError`. */
function openRing(memory: ProcessMemory): OpenedRing {
  const descriptor = memory.duplicate();
  try {
    return { ring: new CopyRing(), descriptor };
  } catch (error) {
    closeDescriptor(descriptor);
    throw error;
  }
}

function newToken(): string {
  return tokenText(randomBytes(TOKEN_BYTES));
}

function orNoMemory<T>(create: () => T): T {
  try {
    return create();
  } catch (error) {
    if (error instanceof SystemCallError) throw new VerbsError('ENOMEM', error.message);
    throw error;
  }
}
