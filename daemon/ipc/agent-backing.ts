/**
 * Memory of a client's process that the client's agent copies on request. Reads are staged: the
 * first `prepareRead` of a range fetches it, `onReady` says when it is there. Writes are sent at
 * once and counted until the agent has acknowledged them.
 */
import { AGENT_TRANSFER_MAX_BYTES } from '../../verbs-api/contract/ipc-records.ts';
import { copyOctets, type MemoryBacking } from '../rnic/memory-backing.ts';
import { type AgentChannel, STAGED_MAX_BYTES } from './agent-channel.ts';

/** A fetched, or being fetched, range. */
interface Staged {
  readonly offset: number;
  readonly octets: Uint8Array;
  /** State of the client's queue pairs when it was asked for. */
  readonly epoch: number;
  /** Pieces still on their way. */
  missing: number;
  /** Not to be used: the range was written meanwhile, or the fetch failed. */
  stale: boolean;
}

/** See the module's comment. */
export class AgentBacking implements MemoryBacking {
  readonly tier = 'agent';
  readonly view = undefined;
  onReady: (() => void) | undefined = undefined;
  readonly #channel: AgentChannel;
  readonly #address: number;
  readonly #lengthBytes: number;
  readonly #epoch: () => number;
  #staged: Staged[] = [];
  #used: Staged[] = [];
  #pendingWrites = 0;
  #lost = false;

  /**
   * `epoch` changes whenever a queue pair of the client may have given up work: octets fetched for
   * that work must not be taken for octets of later work.
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

  get ownerGone(): boolean {
    return !this.#channel.open;
  }

  prepareRead(offset: number, length: number): boolean {
    // What cannot be fetched is found out by `read`.
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
    copyOctets(staged.octets, offset - staged.offset, length, target, targetStart);
    if (offset + length === staged.offset + staged.octets.length) this.#retire(staged);
    return true;
  }

  write(offset: number, octets: Uint8Array, start: number, length: number): boolean {
    if (!this.#reachable(offset, length)) return false;
    for (const staged of this.#staged) {
      const apart =
        offset + length <= staged.offset || offset >= staged.offset + staged.octets.length;
      if (!apart) staged.stale = true;
    }
    for (let done = 0; done < length; done += AGENT_TRANSFER_MAX_BYTES) {
      const piece = Math.min(length - done, AGENT_TRANSFER_MAX_BYTES);
      this.#pendingWrites += 1;
      this.#channel.write(this.#address + offset + done, octets, start + done, piece, (reply) => {
        this.#pendingWrites -= 1;
        if (reply === undefined) this.#lost = true;
        if (this.#pendingWrites === 0) this.onReady?.();
      });
    }
    return true;
  }

  /** Every later access is refused. */
  release(): void {
    this.#lost = true;
    this.onReady = undefined;
    for (const staged of this.#staged) this.#channel.stagedBytes -= staged.octets.length;
    this.#staged = [];
    this.#used = [];
  }

  #reachable(offset: number, length: number): boolean {
    return !this.#lost && this.#channel.open && offset >= 0 && offset + length <= this.#lengthBytes;
  }

  #find(offset: number, length: number): Staged | undefined {
    const epoch = this.#epoch();
    for (const staged of this.#staged) {
      if (staged.stale || staged.epoch !== epoch) staged.stale = true;
      else if (offset >= staged.offset && offset + length <= staged.offset + staged.octets.length) {
        return staged;
      }
    }
    return undefined;
  }

  #fetch(offset: number, length: number): void {
    this.#makeRoom(length);
    const pieces = Math.ceil(length / AGENT_TRANSFER_MAX_BYTES);
    const staged: Staged = {
      offset,
      octets: new Uint8Array(length),
      epoch: this.#epoch(),
      missing: pieces,
      stale: false,
    };
    this.#staged.push(staged);
    this.#channel.stagedBytes += length;
    for (let piece = 0; piece < pieces; piece++) {
      const start = piece * AGENT_TRANSFER_MAX_BYTES;
      const pieceBytes = Math.min(length - start, AGENT_TRANSFER_MAX_BYTES);
      this.#channel.read(this.#address + offset + start, pieceBytes, (octets) => {
        if (octets === undefined) this.#lost = true;
        else staged.octets.set(octets, start);
        staged.missing -= 1;
        if (staged.missing === 0) this.onReady?.();
      });
    }
  }

  /** Gives up the oldest octets that nobody came for; whoever wants them fetches them again. */
  #makeRoom(length: number): void {
    for (const staged of [...this.#staged]) {
      const full = this.#channel.stagedBytes + length > STAGED_MAX_BYTES;
      if (staged.missing === 0 && (staged.stale || full)) this.#drop(staged);
    }
  }

  /** Used up; dropped after this turn, as the same range may be read again within it. */
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
    this.#channel.stagedBytes -= staged.octets.length;
  }
}
