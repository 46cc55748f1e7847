/**
 * The memory of a simulated program, in every tier: mapped by the device, reached by system calls
 * that may defer writes, or copied by a slow agent. An area may be lost at any moment, as by
 * munmap: later reads and writes of it fail.
 *
 * The backings are the daemon's; the kernel and the agent below them are simulated.
 */
import {
  AGENT_REPLY_BYTES,
  AGENT_REQUEST_BYTES,
  AgentOperation,
  emitAgentReply,
  parseAgentRequest,
} from '#contract/protocol/ipc-records';
import { VerbsError } from '#contract/verbs/errors';
import { AgentBacking } from '#daemon/clients/objects/agent-backing';
import { AgentChannel, type AgentConnection } from '#daemon/clients/objects/agent-channel';
import type {
  ClientMemory,
  ProcessAllocation,
  SharedAllocation,
} from '#daemon/clients/objects/client-memory';
import { COPY_ORDERS } from '#daemon/clients/objects/copy-ring';
import type { CopyLoop, DirectCopies } from '#daemon/clients/objects/direct-copies';
import { IncomingCopies } from '#daemon/clients/objects/incoming-copies';
import { ProcessBacking } from '#daemon/clients/objects/process-backing';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { ProcessMemory } from '#native-bridge/libc/process-vm';
import type { Prng } from '../support/prng.ts';
import type { VirtualTime } from '../support/virtual-time.ts';
import { type SimProcesses, simCopies } from './sim-copies.ts';

/** How the device reaches a program's memory. */
export type Tier = 'local' | 'process_vm' | 'agent';

const FIRST_ADDRESS = 0x1000_0000;
const PAGE_BYTES = 4096;
const EFAULT = 14;
/** The agent's longest delay. */
const AGENT_DELAY_MAX_MICROS = 3000;

/** Buffers kept from run to run, by length: a run would spend much of its time allocating them. */
const SPARES = new Map<number, Uint8Array[]>();
/** Lengths of longer buffers hardly recur. */
const SPARE_MAX_BYTES = 65_536;
const SPARE_LENGTHS = 256;
const SPARES_OF_LENGTH = 64;

/** Bytes that are all 0. */
function zeros(lengthBytes: number): Uint8Array {
  const spare = SPARES.get(lengthBytes)?.pop();
  return spare === undefined ? new Uint8Array(lengthBytes) : spare.fill(0);
}

/** The bytes will not be used again. */
function keepSpare(bytes: Uint8Array): void {
  let spares = SPARES.get(bytes.length);
  if (spares === undefined) {
    if (SPARES.size === SPARE_LENGTHS) return;
    spares = [];
    SPARES.set(bytes.length, spares);
  }
  if (spares.length < SPARES_OF_LENGTH) spares.push(bytes);
}

/** Some memory of a program. */
export class Area {
  readonly address: number;
  readonly bytes: Uint8Array;
  readonly tier: Tier;
  /** Unmapped. */
  lost = false;
  /** Never written, so all programs may share it. */
  readonly constant: boolean;

  constructor(address: number, bytes: Uint8Array, tier: Tier, constant: boolean) {
    this.address = address;
    this.bytes = bytes;
    this.tier = tier;
    this.constant = constant;
  }
}

/** See the module's comment. */
export class SimMemory implements ClientMemory {
  readonly sharedTier = { tier: 'local', reason: 'simulated' } as const;
  /** Shared allocations that were not released, by token. */
  readonly shared = new Map<string, Uint8Array>();
  /** Called when the agent has answered. */
  set afterReply(run: () => void) {
    this.#agent.afterReply = run;
  }

  /** State of the program's queue pairs; see `AgentBacking`. */
  epoch: () => number = () => 0;
  readonly #areas = new Map<number, Area>();
  readonly #agent: SimAgent;
  readonly #channel: AgentChannel;
  readonly #process: SimProcess;
  /** Copies into this memory by agents of other programs, and out of it by its own. */
  readonly incoming = new IncomingCopies();
  readonly takesCopies = true;
  readonly #registered = new Set<{ readonly start: number; readonly end: number }>();
  #copies: DirectCopies | undefined;
  #endCopies: () => void = () => undefined;
  /** Process allocations that were not released. */
  opened = 0;
  #next = FIRST_ADDRESS;
  #nextToken = 0;
  /** Buffers for the next run. */
  readonly #reusable: Uint8Array[] = [];

  constructor(time: VirtualTime, prng: Prng) {
    const find = (address: number, length: number): Area | undefined => this.#find(address, length);
    this.#agent = new SimAgent(time, prng, find);
    this.#channel = new AgentChannel(this.#agent);
    this.#agent.channel = this.#channel;
    this.#process = new SimProcess(find);
  }

  /** From now on the program's agent copies straight into memory of other programs. */
  copyDirectly(
    loop: CopyLoop,
    processes: SimProcesses,
    time: VirtualTime,
    prng: Prng,
    pid = processes.size + 1,
  ): void {
    this.#process.pid = pid;
    processes.set(pid, (address, length, write) => {
      const area = this.#find(address, length);
      if (area === undefined || area.lost || (write && area.constant)) return undefined;
      // The agent copies only what is registered.
      if (!write && !this.#isRegistered(address, length)) return undefined;
      return area.bytes.subarray(address - area.address, address - area.address + length);
    });
    const { copies, die } = simCopies(loop, time, prng, processes, pid, COPY_ORDERS);
    this.#copies = copies;
    this.#endCopies = die;
  }

  get copies(): DirectCopies | undefined {
    return this.#copies;
  }

  /** Allocates memory. With `bytes` the area is those bytes, which must stay constant. */
  allocate(lengthBytes: number, tier: Tier, bytes?: Uint8Array): Area {
    const address = this.#next;
    this.#next += (Math.ceil(lengthBytes / PAGE_BYTES) + 1) * PAGE_BYTES;
    const area = new Area(address, bytes ?? this.#take(lengthBytes), tier, bytes !== undefined);
    this.#areas.set(address, area);
    return area;
  }

  free(area: Area): void {
    area.lost = true;
    this.#areas.delete(area.address);
  }

  /** The agent has answered everything. */
  get idle(): boolean {
    return this.#agent.idle;
  }

  /** The program is gone, with its memory. */
  die(): void {
    for (const area of this.#areas.values()) area.lost = true;
    this.#process.gone = true;
    this.#endCopies();
    for (const maker of this.incoming.makers) maker.dropAllInto(this.incoming);
    this.#agent.die();
  }

  /** The run is over. */
  recycle(): void {
    for (const bytes of this.#reusable.splice(0)) keepSpare(bytes);
  }

  createShared(lengthBytes: number): SharedAllocation {
    const token = `shared ${this.#nextToken++}`;
    const view = this.#take(Math.ceil(lengthBytes / 8) * 8).subarray(0, lengthBytes);
    this.shared.set(token, view);
    const release = (): void => {
      this.shared.delete(token);
    };
    return { mapping: { token, lengthBytes }, view, release };
  }

  createRing(lengthBytes: number): SharedAllocation {
    return this.createShared(lengthBytes);
  }

  openProcess(address: bigint, lengthBytes: number): ProcessAllocation {
    const area = this.#find(Number(address), lengthBytes);
    if (area === undefined) throw new VerbsError('EFAULT', 'no memory at this address');
    this.opened += 1;
    let open = true;
    const close = (): void => {
      if (open) this.opened -= 1;
      open = false;
    };
    const reason = 'simulated';
    const start = Number(address);
    if (area.tier === 'local') {
      const from = start - area.address;
      const backing = new ViewBacking(area.bytes.subarray(from, from + lengthBytes), 'local');
      return { backing, reason, release: close };
    }
    if (area.tier === 'process_vm') {
      // Only the layer below the backing is simulated.
      const process = this.#process as unknown as ProcessMemory;
      const backing = new ProcessBacking(process, start, lengthBytes, this);
      const range = { start, end: start + lengthBytes };
      this.#registered.add(range);
      const release = (): void => {
        close();
        this.#registered.delete(range);
        backing.release();
      };
      return { backing, reason, release };
    }
    const backing = new AgentBacking(this.#channel, start, lengthBytes, () => this.epoch());
    const release = (): void => {
      close();
      backing.release();
    };
    return { backing, reason, release };
  }

  /** Requests that the agent has not answered. */
  get pendingRequests(): number {
    return this.#channel.pendingCount;
  }

  /** Bytes fetched from the program and not yet used. */
  get stagedBytes(): number {
    return this.#channel.staged.bytes;
  }

  #isRegistered(address: number, lengthBytes: number): boolean {
    for (const { start, end } of this.#registered) {
      if (address >= start && address + lengthBytes <= end) return true;
    }
    return false;
  }

  #take(lengthBytes: number): Uint8Array {
    const bytes = zeros(lengthBytes);
    if (lengthBytes <= SPARE_MAX_BYTES) this.#reusable.push(bytes);
    return bytes;
  }

  #find(address: number, lengthBytes: number): Area | undefined {
    for (const area of this.#areas.values()) {
      if (address >= area.address && address + lengthBytes <= area.address + area.bytes.length) {
        return area;
      }
    }
    return undefined;
  }
}

type Find = (address: number, length: number) => Area | undefined;

interface Kept {
  readonly address: number;
  /** The bytes themselves, not a copy, as the kernel reads them. */
  readonly bytes: Uint8Array;
  /** Notified of its loss. */
  readonly owner: object;
}

/** The kernel's part of `ProcessBacking`. */
class SimProcess {
  gone = false;

  get open(): boolean {
    return !this.gone;
  }

  pid = 0;
  lastError = '';
  readonly #find: Find;
  #kept: Kept[] = [];
  #wanted: Kept[] = [];
  /** Owners of deferred writes that were lost since their last flush. */
  readonly #lost = new Set<object>();

  constructor(find: Find) {
    this.#find = find;
  }

  read(address: number, target: Uint8Array, targetStart: number, length: number): boolean {
    this.#carryOut();
    const area = this.#reach(address, length);
    if (area === undefined) return false;
    const from = address - area.address;
    target.set(area.bytes.subarray(from, from + length), targetStart);
    return true;
  }

  write(address: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.#carryOut();
    return this.#put({ address, bytes: bytes.subarray(start, start + length), owner: this });
  }

  writeLater(
    address: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    owner: object,
  ): boolean {
    this.#kept.push({ address, bytes: bytes.subarray(start, start + length), owner });
    return true;
  }

  readLater(address: number, target: Uint8Array, start: number, length: number): boolean {
    this.#wanted.push({ address, bytes: target.subarray(start, start + length), owner: this });
    return true;
  }

  flushReads(): boolean {
    const wanted = this.#wanted;
    this.#wanted = [];
    if (wanted.length > 0) this.#carryOut();
    // A transfer ends at its first failing piece.
    return wanted.every((piece) => this.#get(piece));
  }

  flush(owner: object): boolean {
    this.#carryOut();
    return !this.#lost.delete(owner);
  }

  #carryOut(): void {
    const kept = this.#kept;
    this.#kept = [];
    for (const piece of kept) if (!this.#put(piece)) this.#lost.add(piece.owner);
  }

  #get({ address, bytes }: Kept): boolean {
    const area = this.#reach(address, bytes.length);
    if (area === undefined) return false;
    const from = address - area.address;
    bytes.set(area.bytes.subarray(from, from + bytes.length));
    return true;
  }

  #put({ address, bytes }: Kept): boolean {
    const area = this.#reach(address, bytes.length);
    if (area === undefined || area.constant) return false;
    area.bytes.set(bytes, address - area.address);
    return true;
  }

  #reach(address: number, length: number): Area | undefined {
    const area = this.#find(address, length);
    const reached = this.gone || area?.lost === true ? undefined : area;
    if (reached === undefined) this.lastError = this.gone ? 'ESRCH' : 'EFAULT';
    return reached;
  }
}

/** The program's end of the agent connection: serves requests in order, after a delay. */
class SimAgent implements AgentConnection {
  closed = false;
  unreadMaxBytes = 0;
  channel: AgentChannel | undefined;
  /** Called after each answer: the daemon resumes its work. */
  afterReply: () => void = () => {};
  readonly #time: VirtualTime;
  readonly #prng: Prng;
  readonly #find: Find;
  readonly #requests: Uint8Array[] = [];
  #busy = false;

  constructor(time: VirtualTime, prng: Prng, find: Find) {
    this.#time = time;
    this.#prng = prng;
    this.#find = find;
  }

  get idle(): boolean {
    return !this.#busy;
  }

  write(bytes: Uint8Array): void {
    if (this.closed) return;
    this.#requests.push(bytes.slice());
    this.#work();
  }

  keep(): void {}

  die(): void {
    if (this.closed) return;
    this.closed = true;
    this.#requests.length = 0;
    this.channel?.handleClosed();
  }

  #work(): void {
    if (this.#busy || this.#requests.length === 0) return;
    this.#busy = true;
    this.#time.after(this.#prng.between(1, AGENT_DELAY_MAX_MICROS), () => {
      this.#busy = false;
      const request = this.#requests.shift();
      if (request === undefined || this.closed) return;
      this.channel?.handleBytes(this.#carryOut(request));
      this.afterReply();
      this.#work();
    });
  }

  #carryOut(record: Uint8Array): Uint8Array {
    const { operation, id, address, length } = parseAgentRequest(record);
    const area = this.#find(address, length);
    if (area === undefined || area.lost || (operation === AgentOperation.write && area.constant)) {
      const refusal = new Uint8Array(AGENT_REPLY_BYTES);
      emitAgentReply({ id, errno: EFAULT, length: 0 }, refusal);
      return refusal;
    }
    const from = address - area.address;
    if (operation === AgentOperation.write) {
      area.bytes.set(record.subarray(AGENT_REQUEST_BYTES, AGENT_REQUEST_BYTES + length), from);
      const done = new Uint8Array(AGENT_REPLY_BYTES);
      emitAgentReply({ id, errno: 0, length: 0 }, done);
      return done;
    }
    const reply = new Uint8Array(AGENT_REPLY_BYTES + length);
    emitAgentReply({ id, errno: 0, length }, reply);
    reply.set(area.bytes.subarray(from, from + length), AGENT_REPLY_BYTES);
    return reply;
  }
}

/** Registered memory. */
export interface Registered {
  readonly area: Area;
  readonly mr: number;
  readonly lkey: number;
  readonly rkey: number;
}
