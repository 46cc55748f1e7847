/**
 * A program of the simulation of memory: its registered memory, in pieces that are used again and
 * again, and objects shared between its queue pairs.
 */
import { QueueFlag, RQE, RQE_BYTES } from '#contract/protocol/queue-layout';
import { Access } from '#contract/verbs/enums';
import type { CopyLoop } from '#daemon/clients/objects/direct-copies';
import { WorkEpoch } from '#daemon/clients/objects/work-epoch';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import type { QP } from '#daemon/rnic/queue-pair';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import { ReceiveProducer } from '#test/support/flag-ring-client';
import type { Prng } from '#test/support/prng';
import { ALL_ACCESS } from '#test/support/test-memory';
import type { VirtualTime } from '#test/support/virtual-time';
import type { SimProcesses } from '../sim-copies.ts';
import { type Area, SimMemory, type Tier } from '../sim-memory.ts';
import { must } from './rules.ts';

/** Minimum length of each piece of memory: the longest message. */
export const PIECE_BYTES = 6144;
/** Most messages are longer. */
const LENT_BYTES_MIN = 512;
/** Fewer bytes than two long messages have. */
const LENT_BYTES_MAX = 10_000;
const PIECES = 12;
const SHARED_RECEIVES = 32;
/** Filler for memory that a program has finished with: it reveals a late write or a late read. */
const DONE = 0xee;
const ALL_DONE = new Uint8Array(PIECE_BYTES).fill(DONE);

/** A registered piece, taken by one work request at a time. */
export class Piece {
  readonly region: Region;
  readonly offset: number;

  constructor(region: Region, offset: number) {
    this.region = region;
    this.offset = offset;
  }

  bytes(length: number): Uint8Array {
    return this.region.area.bytes.subarray(this.offset, this.offset + length);
  }

  get address(): number {
    return this.region.area.address + this.offset;
  }

  sge(length: number, from = 0): { addr: number; length: number; lkey: number } {
    return { addr: this.address + from, length, lkey: this.region.mr.lkey };
  }
}

/** A queue pair that uses some memory. */
interface MemoryUser {
  readonly qp: QP;
  /** It may fail from now on. */
  mayFail(text: string): void;
}

/** Registered memory of a program, used by some of its queue pairs. */
export class Region {
  readonly area: Area;
  readonly mr: MR;
  /** Queue pairs that fail with it. */
  readonly users = new Set<MemoryUser>();
  /** Gone, or deregistered. */
  lost = false;
  /** Deregistered: its last data may have arrived or not. */
  closed = false;
  /** The program uses it for something else. */
  reused = false;
  readonly #free: Piece[] = [];
  readonly #release: () => void;

  constructor(area: Area, mr: MR, release: () => void) {
    this.area = area;
    this.mr = mr;
    this.#release = release;
    for (let index = 0; index < PIECES; index += 1) {
      this.#free.push(new Piece(this, index * PIECE_BYTES));
    }
    area.bytes.fill(DONE);
  }

  take(): Piece | undefined {
    const piece = this.#free.shift();
    if (piece === undefined) return undefined;
    // No work that was in progress when it was given back, or started since, may have changed it.
    const untouched = Buffer.compare(piece.bytes(PIECE_BYTES), ALL_DONE) === 0;
    must(untouched, 'late', 'memory was written to after the work that named it completed');
    return piece;
  }

  /** The program has finished with a piece, and reuses it. */
  give(piece: Piece): void {
    piece.bytes(PIECE_BYTES).fill(DONE);
    this.#free.push(piece);
  }

  /** The program has deregistered it, and been told so: nothing may be written there any more. */
  reuse(): void {
    this.reused = true;
    this.area.bytes.fill(DONE);
  }

  checkReused(): void {
    if (!this.reused) return;
    const untouched = this.area.bytes.every((byte) => byte === DONE);
    must(untouched, 'late', 'memory was written to after its deregistration');
  }

  close(): void {
    this.closed = true;
    this.mr.close();
    this.#release();
  }
}

interface ProgramOptions {
  /** Its queue pairs share receives. */
  readonly shares: boolean;
  /** All programs, if their agents copy straight into each other's memory. */
  readonly processes: SimProcesses | undefined;
}

/** See the module's comment. */
export class MemoryProgram {
  readonly memory: SimMemory;
  readonly device: EmulatedDevice;
  readonly index: number;
  readonly pd: PD;
  readonly ends: MemoryUser[] = [];
  readonly regions: Region[] = [];
  readonly shared: { readonly srq: SRQ; readonly pieces: Map<number, Piece> } | undefined;
  readonly #epoch = new WorkEpoch();
  readonly #receives: ReceiveProducer | undefined;
  readonly #region: Region | undefined;
  #nextReceive = 1;
  #direct = false;

  constructor(
    host: RnicHost,
    index: number,
    time: VirtualTime,
    prng: Prng,
    options: ProgramOptions,
  ) {
    const device = host.devices[index];
    if (device === undefined) throw new Error(`no device ${index}`);
    this.index = index;
    this.device = device;
    this.memory = new SimMemory(time, prng);
    this.memory.afterReply = () => host.drain();
    this.memory.epoch = () => this.#epoch.value(this.ends);
    this.pd = device.nic.allocPD();
    if (options.processes !== undefined) this.#copyDirectly(host, options.processes, time, prng);
    if (!options.shares) return;
    this.#region = this.register(anyTier(prng));
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    const init = { maxWr: SHARED_RECEIVES, maxSge: 2, srqLimit: 0, ring, tag: undefined };
    const srq = device.nic.createSRQ(this.pd, init);
    this.shared = { srq, pieces: new Map() };
    this.#receives = new ReceiveProducer(srq.ring, 0, srq.count);
  }

  /** Memory that queue pairs have abandoned must not be used for later work. */
  noteCommand(): void {
    this.#epoch.noteCommand();
  }

  #copyDirectly(host: RnicHost, processes: SimProcesses, time: VirtualTime, prng: Prng): void {
    const { rocePort } = this.device;
    if (rocePort !== undefined) rocePort.lentPayload.bytesMin = LENT_BYTES_MIN;
    else this.device.nic.setLentBytes(LENT_BYTES_MIN, LENT_BYTES_MAX);
    const loop: CopyLoop = {
      soon: (run) => time.soon(run),
      after: (delay, run) => time.after(delay, run),
      drain: () => host.drain(),
      yieldCore: () => undefined,
      readClock: () => undefined,
    };
    this.memory.copyDirectly(loop, processes, time, prng);
    this.#direct = true;
  }

  register(wanted: Tier): Region {
    const tier = this.#direct ? 'process_vm' : wanted;
    const bytes = PIECES * PIECE_BYTES;
    const area = this.memory.allocate(bytes, tier);
    const { backing, release } = this.memory.openProcess(BigInt(area.address), bytes);
    // Atomics run at once, so they cannot use slow memory.
    const withheld = tier === 'agent' ? Access.remoteAtomic : 0;
    const mr = this.device.nic.regMR(this.pd, {
      backing,
      backingOffset: 0,
      lengthBytes: bytes,
      address: area.address,
      iova: area.address,
      access: ALL_ACCESS & ~withheld,
      key: undefined,
    });
    const region = new Region(area, mr, release);
    this.regions.push(region);
    return region;
  }

  /** A queue pair that uses the program's shared receives, and their memory. */
  join(end: MemoryUser): void {
    this.ends.push(end);
    if (this.shared !== undefined) this.#region?.users.add(end);
  }

  postShared(length: number): void {
    const { shared } = this;
    if (shared === undefined || shared.pieces.size >= SHARED_RECEIVES) return;
    const piece = this.#region?.lost === false ? this.#region.take() : undefined;
    if (piece === undefined) return;
    const id = this.#nextReceive++;
    shared.pieces.set(id, piece);
    this.#receives?.post(id, [piece.sge(length)]);
  }

  /** A receive without a completion is still posted. */
  checkShared(): void {
    const { shared } = this;
    if (shared === undefined) return;
    const { ring, count } = shared.srq;
    let posted = 0;
    for (let slot = 0; slot < count; slot += 1) {
      if (((ring[slot * RQE_BYTES + RQE.flags] ?? 0) & QueueFlag.valid) !== 0) posted += 1;
    }
    const { size } = shared.pieces;
    must(posted === size, 'once', `${size} shared receives are outstanding, ${posted} are posted`);
  }
}

export function anyTier(prng: Prng): Tier {
  return prng.choose(['local', 'process_vm', 'process_vm', 'agent', 'agent']);
}
