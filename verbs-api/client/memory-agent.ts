/**
 * The agent of a client: copies bytes of its registered memory for the daemon when the daemon
 * cannot reach them itself. It accesses registered memory only, whatever the daemon requests.
 */
import type { Handle } from '#contract/protocol/commands';
import {
  AGENT_REPLY_BYTES,
  AGENT_REQUEST_BYTES,
  AgentOperation,
  type AgentRequest,
  emitAgentReply,
  parseAgentRequest,
  RecordReader,
} from '#contract/protocol/ipc-records';
import { ERRNO } from '#contract/verbs/errors';

interface Registration {
  readonly address: number;
  readonly buffer: Uint8Array;
}

/** Registered memory by address, and the daemon's requests on it. */
export class MemoryAgent {
  /** Buffers whose address was requested, until they are registered. */
  readonly #candidates = new Map<bigint, WeakRef<Uint8Array>>();
  readonly #registrations = new Map<Handle, Registration>();
  /** Registered before the reply with the handle arrives. */
  readonly #starting = new Set<Registration>();

  /** Records a buffer whose address is about to be registered. */
  note(address: bigint, buffer: Uint8Array): void {
    this.#candidates.set(address, new WeakRef(buffer));
  }

  /** A registration of noted memory starts. Returns the callback for its outcome. */
  begin(address: bigint): (mr: Handle | undefined) => void {
    const buffer = this.#candidates.get(address)?.deref();
    this.#candidates.delete(address);
    if (buffer === undefined) return () => undefined;
    const registration = { address: Number(address), buffer };
    this.#starting.add(registration);
    return (mr) => {
      this.#starting.delete(registration);
      if (mr !== undefined) this.#registrations.set(mr, registration);
    };
  }

  /** The region is gone; releases its buffer. */
  remove(mr: Handle): void {
    this.#registrations.delete(mr);
  }

  /** A reader for the bytes of an agent connection; answers go to `reply`. */
  reader(reply: (bytes: Uint8Array) => void): RecordReader {
    return new RecordReader(
      AGENT_REQUEST_BYTES,
      (head) => {
        const request = parseAgentRequest(head);
        return request.operation === AgentOperation.write ? request.length : 0;
      },
      (record) => reply(this.#execute(parseAgentRequest(record), record)),
    );
  }

  #execute(request: AgentRequest, record: Uint8Array): Uint8Array {
    const bytes = this.#bytesAt(request.address, request.length);
    const { id, length } = request;
    if (bytes === undefined) {
      const refused = new Uint8Array(AGENT_REPLY_BYTES);
      emitAgentReply({ id, errno: ERRNO.EFAULT.number, length: 0 }, refused);
      return refused;
    }
    if (request.operation === AgentOperation.write) {
      bytes.set(record.subarray(AGENT_REQUEST_BYTES));
      const written = new Uint8Array(AGENT_REPLY_BYTES);
      emitAgentReply({ id, errno: 0, length: 0 }, written);
      return written;
    }
    const reply = new Uint8Array(AGENT_REPLY_BYTES + length);
    emitAgentReply({ id, errno: 0, length }, reply);
    reply.set(bytes, AGENT_REPLY_BYTES);
    return reply;
  }

  #bytesAt(address: number, length: number): Uint8Array | undefined {
    for (const set of [this.#registrations.values(), this.#starting.values()]) {
      for (const { address: start, buffer } of set) {
        if (address >= start && address + length <= start + buffer.length) {
          return buffer.subarray(address - start, address - start + length);
        }
      }
    }
    return undefined;
  }
}
