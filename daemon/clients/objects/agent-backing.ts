/**
 * Memory of a client's process that the client's agent copies on request. Reads are staged: the
 * first `prepareRead` of a range fetches it, and `onReady` reports its arrival. Writes are sent at
 * once and counted until the agent acknowledges them.
 */
import { AGENT_TRANSFER_MAX_BYTES } from '#contract/protocol/ipc-records';
import { copyBytes, type MemoryBacking } from '#daemon/rnic/memory/memory-backing';
import type { AgentChannel } from './agent-channel.ts';
import type { StagedRange } from './staged-memory.ts';

/** A range that was fetched or is being fetched. */
interface Staged extends StagedRange {
  readonly offset: number;
  /** Work epoch of the client when the range was requested. */
  readonly epoch: number;
  missing: number;
  /** Must not be used: the range was written in the meantime, or the fetch failed. */
  stale: boolean;
}

export class AgentBacking implements MemoryBacking {
  readonly tier = 'agent';
  readonly view = undefined;
  onReady: (() => void) | undefined = undefined;
  readonly #channel: AgentChannel;
  #address: number;
  readonly #lengthBytes: number;
  readonly #epoch: () => number;
  #staged: Staged[] = [];
  #used: Staged[] = [];
  #pendingWrites = 0;
  /** No access is possible: the owner released the memory, or an access failed. */
  #lost = false;
  #released = false;
  #writeLost = false;
  /** Written to while the agent lagged: `onReady` must report when it has caught up. */
  #lagging = false;

  /**
   * `epoch` changes whenever a queue pair of the client may have abandoned work: bytes fetched for
   * that work must not be used for later work.
   */
  constructor(channel: AgentChannel, address: number, lengthBytes: number, epoch: () => number) {
    this.#channel = channel;
    this.#address = address;
    this.#lengthBytes = lengthBytes;
    this.#epoch = epoch;
  }

  get pendingWrites(): number {
    return this.#pendingWrites;
  }

  get congested(): boolean {
    return this.#channel.congested;
  }

  get writeLost(): boolean {
    return this.#writeLost;
  }

  get ownerGone(): boolean {
    return !this.#channel.open;
  }

  prepareRead(offset: number, length: number): boolean {
    // `read` reports a range that cannot be fetched.
    if (!this.#reachable(offset, length)) return true;
    const staged = this.#find(offset, length);
    if (staged !== undefined) return staged.missing === 0;
    this.#fetch(offset, length);
    return false;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    if (!this.#reachable(offset, length)) return false;
    const staged = this.#find(offset, length);
    if (staged === undefined || staged.missing > 0) return false;
    copyBytes(staged.bytes, offset - staged.offset, length, target, targetStart);
    if (offset + length === staged.offset + staged.bytes.length) this.#retire(staged);
    return true;
  }

  abandonRead(offset: number, length: number): void {
    this.#outdate(offset, length);
    this.#dropStale();
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    if (!this.#reachable(offset, length)) return false;
    this.#outdate(offset, length);
    for (let done = 0; done < length; done += AGENT_TRANSFER_MAX_BYTES) {
      const piece = Math.min(length - done, AGENT_TRANSFER_MAX_BYTES);
      this.#pendingWrites += 1;
      this.#channel.write(this.#address + offset + done, bytes, start + done, piece, (reply) => {
        this.#pendingWrites -= 1;
        if (reply === undefined) this.#loseWrite();
        const caughtUp = this.#lagging && !this.#channel.congested;
        if (caughtUp) this.#lagging = false;
        if (caughtUp || this.#pendingWrites === 0) this.onReady?.();
      });
    }
    if (this.#channel.congested) this.#lagging = true;
    return true;
  }

  /** The process moved the memory. */
  move(address: number): void {
    this.#address = address;
  }

  /** Fails every later access; earlier writes still arrive, and `onReady` still reports them. */
  release(): void {
    this.#lost = true;
    this.#released = true;
    for (const staged of this.#staged) this.#channel.staged.remove(staged);
    this.#staged = [];
    this.#used = [];
  }

  /** After deregistration the outcome of the last writes no longer matters. */
  #loseWrite(): void {
    this.#lost = true;
    if (!this.#released) this.#writeLost = true;
  }

  #reachable(offset: number, length: number): boolean {
    return !this.#lost && this.#channel.open && offset >= 0 && offset + length <= this.#lengthBytes;
  }

  #find(offset: number, length: number): Staged | undefined {
    const epoch = this.#epoch();
    for (const staged of this.#staged) {
      if (staged.stale || staged.epoch !== epoch) staged.stale = true;
      else if (offset >= staged.offset && offset + length <= staged.offset + staged.bytes.length) {
        return staged;
      }
    }
    return undefined;
  }

  #fetch(offset: number, length: number): void {
    this.#dropStale();
    this.#channel.staged.makeRoom(length);
    const pieces = Math.ceil(length / AGENT_TRANSFER_MAX_BYTES);
    const staged: Staged = {
      offset,
      bytes: new Uint8Array(length),
      epoch: this.#epoch(),
      missing: pieces,
      stale: false,
      drop: () => this.#drop(staged),
    };
    this.#staged.push(staged);
    this.#channel.staged.add(staged);
    for (let piece = 0; piece < pieces; piece++) {
      const start = piece * AGENT_TRANSFER_MAX_BYTES;
      const pieceBytes = Math.min(length - start, AGENT_TRANSFER_MAX_BYTES);
      this.#channel.read(this.#address + offset + start, pieceBytes, (bytes) => {
        if (bytes === undefined) this.#lost = true;
        else staged.bytes.set(bytes, start);
        staged.missing -= 1;
        if (staged.missing === 0) this.onReady?.();
      });
    }
  }

  /** Marks bytes fetched of this range as stale. */
  #outdate(offset: number, length: number): void {
    for (const staged of this.#staged) {
      const apart =
        offset + length <= staged.offset || offset >= staged.offset + staged.bytes.length;
      if (!apart) staged.stale = true;
    }
  }

  #dropStale(): void {
    for (const staged of [...this.#staged]) {
      if (staged.missing === 0 && staged.stale) this.#drop(staged);
    }
  }

  /** Used up. Dropped after this turn, since the same range may be read again within it. */
  #retire(staged: Staged): void {
    this.#used.push(staged);
    if (this.#used.length > 1) return;
    queueMicrotask(() => {
      for (const used of this.#used) this.#drop(used);
      this.#used = [];
    });
  }

  #drop(staged: Staged): void {
    const index = this.#staged.indexOf(staged);
    if (index < 0) return;
    this.#staged.splice(index, 1);
    this.#channel.staged.remove(staged);
  }
}
