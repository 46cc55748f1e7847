/**
 * The daemon's end of a client's agent connection: requests to copy bytes of the client's memory,
 * answered in order.
 */
import { assert } from '#base/assert';
import {
  AGENT_COPIED_ID,
  AGENT_REPLY_BYTES,
  AGENT_REQUEST_BYTES,
  AgentOperation,
  emitAgentRequest,
  parseAgentReply,
  RecordReader,
} from '#contract/protocol/ipc-records';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { type InputAccount, KeptInput } from '../kept-input.ts';
import { StagedMemory } from './staged-memory.ts';

/**
 * Unread bytes at which a client whose agent does not read is disconnected. Its connections stop
 * reading long before, so only hundreds of busy connections together reach it.
 */
const AGENT_UNREAD_MAX_BYTES = 64 * 2 ** 20;
/**
 * Cost of unacknowledged writes at which connections to the client's memory stop reading: enough to
 * keep agent and TCP busy at the same time.
 */
export const WRITING_MAX_BYTES = 4 * 2 ** 20;
/**
 * Cost of a write in addition to its bytes, in bytes: the record and the entry for its
 * acknowledgement. Without it, a peer that writes single bytes would cost hundreds of MiB.
 */
const WRITE_COST_BYTES = 512;
/** Cost of an unanswered request: its entry. */
const REQUEST_COST_BYTES = 256;
/** Reading resumes at this cost: well below, or it would stop again at the next segment. */
const WRITING_LOW_BYTES = WRITING_MAX_BYTES / 2;

/** The parts of a connection that the channel uses. */
export interface AgentConnection extends InputAccount {
  readonly closed: boolean;
  unreadMaxBytes: number;
  write(bytes: Uint8Array): void;
}

/** Called with the bytes of a read (borrowed), no bytes for a write, undefined on failure. */
type Done = (bytes: Uint8Array | undefined) => void;

interface Request {
  readonly id: number;
  readonly address: number;
  readonly readBytes: number;
  /** 0 for a read. */
  readonly writeCost: number;
  readonly done: Done;
}

const NO_BYTES = new Uint8Array(0);

export class AgentChannel {
  readonly #connection: AgentConnection;
  readonly #requests: Request[] = [];
  readonly #reader: RecordReader;
  #nextId = 0;
  /** Called with the address of a request that failed because the program may not access it. */
  onFault: (address: number) => void = () => undefined;
  /** Called when the agent has carried out orders to copy. */
  onCopied: () => void = () => undefined;
  /** Called when the agent is gone. */
  onClosed: () => void = () => undefined;
  readonly staged: StagedMemory;
  readonly #kept: KeptInput;
  #writingCost = 0;
  #congested = false;

  constructor(connection: AgentConnection) {
    this.#connection = connection;
    connection.unreadMaxBytes = AGENT_UNREAD_MAX_BYTES;
    this.staged = new StagedMemory(connection);
    this.#kept = new KeptInput(connection);
    this.#reader = new RecordReader(
      AGENT_REPLY_BYTES,
      (head) => parseAgentReply(head).length,
      (record) => this.#answered(record),
    );
  }

  /** False once the agent is gone: its memory can no longer be reached. */
  get open(): boolean {
    return !this.#connection.closed;
  }

  /** True while too many writes are unacknowledged: peers should stop sending. */
  get congested(): boolean {
    return this.#congested;
  }

  /** Unanswered requests, for simulations and tests. */
  get pendingCount(): number {
    return this.#requests.length;
  }

  /** Bytes from the client. Throws `IpcFormatError`. */
  handleBytes(bytes: Uint8Array): void {
    this.#reader.push(bytes);
    this.#noteKept();
  }

  /** Charges unanswered requests: an agent that never answers makes the daemon keep them all. */
  #noteKept(): void {
    this.#kept.note(this.#reader.roomBytes + this.#requests.length * REQUEST_COST_BYTES);
  }

  /** Requests bytes. `done` is called later, never from inside this call. */
  read(address: number, length: number, done: Done): void {
    const request = new Uint8Array(AGENT_REQUEST_BYTES);
    this.#ask(request, AgentOperation.read, address, length, done);
  }

  /** Sends bytes, which are copied. `done` is called later, never from inside this call. */
  write(address: number, bytes: Uint8Array, start: number, length: number, done: Done): void {
    const request = new Uint8Array(AGENT_REQUEST_BYTES + length);
    request.set(bytes.subarray(start, start + length), AGENT_REQUEST_BYTES);
    this.#ask(request, AgentOperation.write, address, length, done);
  }

  /** Tells the agent that there are orders to copy. */
  wakeCopies(): void {
    const request = new Uint8Array(AGENT_REQUEST_BYTES);
    emitAgentRequest({ operation: AgentOperation.copy, id: 0, address: 0, length: 0 }, request);
    this.#connection.write(request);
  }

  /** The connection has ended: fails all pending requests. */
  handleClosed(): void {
    this.#writingCost = 0;
    this.#congested = false;
    for (const { done } of this.#requests.splice(0)) done(undefined);
    this.staged.clear();
    this.onClosed();
  }

  /** Compares the counts with the pending requests, for tests. Throws `InvariantError`. */
  assertInvariants(): void {
    const writing = this.#requests.reduce((sum, { writeCost }) => sum + writeCost, 0);
    assert(writing === this.#writingCost, 'wrong cost of unacknowledged writes');
    this.staged.assertInvariants();
    if (this.#congested) assert(writing > WRITING_LOW_BYTES, 'congested below the low mark');
    else assert(writing <= WRITING_MAX_BYTES, 'not congested above the high mark');
  }

  #ask(
    request: Uint8Array,
    operation: AgentOperation,
    address: number,
    length: number,
    done: Done,
  ): void {
    const id = this.#nextId;
    this.#nextId = (id + 1) % AGENT_COPIED_ID;
    emitAgentRequest({ operation, id, address, length }, request);
    const reads = operation === AgentOperation.read;
    const writeCost = reads ? 0 : length + WRITE_COST_BYTES;
    this.#requests.push({ id, address, readBytes: reads ? length : 0, writeCost, done });
    this.#noteKept();
    this.#writingCost += writeCost;
    if (this.#writingCost > WRITING_MAX_BYTES) this.#congested = true;
    this.#connection.write(request);
  }

  #answered(record: Uint8Array): void {
    const reply = parseAgentReply(record);
    if (reply.id === AGENT_COPIED_ID) {
      this.onCopied();
      return;
    }
    const request = this.#requests.shift();
    if (request === undefined || request.id !== reply.id) {
      throw new IpcFormatError('the agent replied without a request');
    }
    this.#writingCost -= request.writeCost;
    if (this.#writingCost <= WRITING_LOW_BYTES) this.#congested = false;
    const expectedBytes = reply.errno === 0 ? request.readBytes : 0;
    if (reply.length !== expectedBytes)
      throw new IpcFormatError('the agent reply has the wrong length');
    if (reply.errno !== 0) {
      this.onFault(request.address);
      request.done(undefined);
    }
    if (reply.errno === 0)
      request.done(request.readBytes > 0 ? record.subarray(AGENT_REPLY_BYTES) : NO_BYTES);
  }
}
