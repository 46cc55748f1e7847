/**
 * The daemon's end of a client's agent connection: requests to copy octets of the client's memory,
 * answered in order.
 */
import {
  AGENT_REPLY_BYTES,
  AGENT_REQUEST_BYTES,
  AgentOperation,
  emitAgentRequest,
  parseAgentReply,
  RecordReader,
} from '../../verbs-api/contract/ipc-records.ts';
import { IpcFormatError } from '../../verbs-api/contract/ipc-value.ts';

/** Octets that may wait for a client's agent to read them before the client is cut off. */
export const AGENT_UNREAD_MAX_BYTES = 256 * 2 ** 20;
/** Octets fetched from one client and not used yet. */
export const STAGED_MAX_BYTES = 16 * 2 ** 20;

/** What the channel needs of its connection. */
export interface AgentConnection {
  readonly closed: boolean;
  unreadMaxBytes: number;
  write(octets: Uint8Array): void;
}

/** Called with the octets of a read (borrowed), none for a write, undefined when it failed. */
type Done = (octets: Uint8Array | undefined) => void;

interface Request {
  readonly id: number;
  readonly readBytes: number;
  readonly done: Done;
}

const NO_OCTETS = new Uint8Array(0);

/** See the module's comment. */
export class AgentChannel {
  readonly #connection: AgentConnection;
  readonly #requests: Request[] = [];
  readonly #reader: RecordReader;
  #nextId = 0;
  /** Octets fetched and not used yet, over all regions of the client. */
  stagedBytes = 0;

  constructor(connection: AgentConnection) {
    this.#connection = connection;
    connection.unreadMaxBytes = AGENT_UNREAD_MAX_BYTES;
    this.#reader = new RecordReader(
      AGENT_REPLY_BYTES,
      (head) => parseAgentReply(head).length,
      (record) => this.#answered(record),
    );
  }

  /** False once the agent is gone: its memory cannot be reached any more. */
  get open(): boolean {
    return !this.#connection.closed;
  }

  /** Octets from the client. Throws `IpcFormatError`. */
  handleOctets(octets: Uint8Array): void {
    this.#reader.push(octets);
  }

  /** Asks for octets. `done` is called later, never from inside this call. */
  read(address: number, length: number, done: Done): void {
    const request = new Uint8Array(AGENT_REQUEST_BYTES);
    this.#ask(request, AgentOperation.read, address, length, done);
  }

  /** Sends octets, which are copied. `done` is called later, never from inside this call. */
  write(address: number, octets: Uint8Array, start: number, length: number, done: Done): void {
    const request = new Uint8Array(AGENT_REQUEST_BYTES + length);
    request.set(octets.subarray(start, start + length), AGENT_REQUEST_BYTES);
    this.#ask(request, AgentOperation.write, address, length, done);
  }

  /** The connection is over: everything under way fails. */
  handleClosed(): void {
    for (const { done } of this.#requests.splice(0)) done(undefined);
  }

  #ask(
    request: Uint8Array,
    operation: AgentOperation,
    address: number,
    length: number,
    done: Done,
  ): void {
    const id = this.#nextId;
    this.#nextId = (id + 1) >>> 0;
    emitAgentRequest({ operation, id, address, length }, request);
    this.#requests.push({ id, readBytes: operation === AgentOperation.read ? length : 0, done });
    this.#connection.write(request);
  }

  #answered(record: Uint8Array): void {
    const reply = parseAgentReply(record);
    const request = this.#requests.shift();
    if (request === undefined || request.id !== reply.id) {
      throw new IpcFormatError('an agent reply that nobody asked for');
    }
    const expectedBytes = reply.errno === 0 ? request.readBytes : 0;
    if (reply.length !== expectedBytes) throw new IpcFormatError('an agent reply of wrong length');
    if (reply.errno !== 0) request.done(undefined);
    else request.done(request.readBytes > 0 ? record.subarray(AGENT_REPLY_BYTES) : NO_OCTETS);
  }
}
