/** A connection as the preload shim makes it, driven frame by frame; descriptors arrive with bytes. */
import {
  emitHello,
  FRAME_HEADER_BYTES,
  FrameType,
  parseWelcome,
  type Role,
  type Welcome,
} from '#contract/protocol/ipc-frames';
import { closeDescriptor, sendNow } from '#native-bridge/libc/descriptor';
import { connectUnix, receiveDescriptor } from '#native-bridge/libc/unix-socket';
import { concat } from './hex.ts';
import { patience, quiet } from './patience.ts';

/** A reply, taken apart. */
interface ReceivedReply {
  readonly status: number;
  readonly id: number;
  readonly flags: number;
  readonly response: Uint8Array;
  readonly descriptors: readonly { readonly offset: number; readonly token: Uint8Array }[];
  readonly purged: readonly number[];
  /** Sent along with the reply; the caller closes it. */
  readonly descriptor: number | undefined;
}

interface RequestFields {
  readonly payload?: Uint8Array;
  readonly argument?: number;
  readonly flags?: number;
  readonly pid?: number;
}

export class ShimClient {
  readonly #fd: number;
  #bytes = new Uint8Array(0);
  #descriptor: number | undefined;
  #welcome: Welcome | undefined;
  #nextId = 0;
  #open = true;

  constructor(path: string, descriptor = connectUnix(path)) {
    this.#fd = descriptor;
  }

  /**
   * Connects in a role; a refusal is in the welcome. `descriptor`: an existing connection, if any.
   */
  static async open(
    path: string,
    role: Role,
    token?: Uint8Array,
    descriptor?: number,
  ): Promise<ShimClient> {
    const client = new ShimClient(path, descriptor);
    client.send(emitHello(role, token));
    const head = await client.take(FRAME_HEADER_BYTES);
    const payload = await client.take(new DataView(head.buffer).getUint32(0, true));
    client.#welcome = parseWelcome({ type: FrameType.welcome, id: 0, payload });
    return client;
  }

  /** Opens device `index`. */
  static uverbs(path: string, role: Role, index = 0): Promise<ShimClient> {
    const token = new Uint8Array(16);
    new DataView(token.buffer).setUint32(0, index + 1, true);
    return ShimClient.open(path, role, token);
  }

  get welcome(): Welcome {
    if (this.#welcome === undefined) throw new Error('not greeted');
    return this.#welcome;
  }

  /** The number of the file or queue. */
  get number(): number {
    return Number.parseInt(this.welcome.text, 10);
  }

  send(bytes: Uint8Array): void {
    sendNow(this.#fd, bytes);
  }

  /** Sends a request; its id. */
  ask(op: number, fields: RequestFields): number {
    this.send(this.#request(op, fields));
    return this.#nextId;
  }

  /** Sends requests in one write, which should fit into the socket's buffer. */
  askTogether(op: number, each: readonly RequestFields[]): void {
    this.send(Buffer.concat(each.map((fields) => this.#request(op, fields))));
  }

  #request(op: number, fields: RequestFields): Uint8Array {
    const { payload = new Uint8Array(0), argument = 0, flags = 0, pid = process.pid } = fields;
    const head = new DataView(new ArrayBuffer(24));
    this.#nextId += 1;
    head.setUint32(0, 24 + payload.length, true);
    head.setUint16(4, op, true);
    head.setUint16(6, flags, true);
    head.setUint32(8, pid, true);
    head.setUint32(12, this.#nextId, true);
    head.setBigUint64(16, BigInt(argument), true);
    return concat(new Uint8Array(head.buffer), payload);
  }

  /** Sends a request and waits for its reply. */
  async call(op: number, fields: RequestFields = {}): Promise<ReceivedReply> {
    const id = this.ask(op, fields);
    const reply = await this.reply();
    if (reply.id !== id) throw new Error(`a reply to ${reply.id} instead of ${id}`);
    return reply;
  }

  async reply(): Promise<ReceivedReply> {
    const head = new DataView((await this.take(24)).buffer);
    const rest = await this.take(head.getUint32(0, true) - 24);
    const responseBytes = head.getUint32(16, true);
    const count = head.getUint32(20, true);
    const fields = new DataView(rest.buffer);
    const descriptors = Array.from({ length: count }, (_, index) => {
      const at = responseBytes + 20 * index;
      return { offset: fields.getUint32(at, true), token: rest.slice(at + 4, at + 20) };
    });
    const purged: number[] = [];
    for (let at = responseBytes + 20 * count + 4; at < rest.length; at += 4) {
      purged.push(fields.getUint32(at, true));
    }
    const descriptor = this.#descriptor;
    this.#descriptor = undefined;
    return {
      status: head.getInt32(4, true),
      id: head.getUint32(8, true),
      flags: head.getUint32(12, true),
      response: rest.slice(0, responseBytes),
      descriptors,
      purged,
      descriptor,
    };
  }

  /** Waits for exactly `bytes` bytes; throws when the daemon closed before. */
  async take(bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    while (this.#bytes.length < bytes) await this.#receive();
    const taken = this.#bytes.slice(0, bytes);
    this.#bytes = this.#bytes.slice(bytes);
    return taken;
  }

  /** Bytes that arrive within `waitMs`. */
  async pending(waitMs: number): Promise<number> {
    await quiet(waitMs);
    const bytes = new Uint8Array(4096);
    const { length } = await receiveDescriptor(this.#fd, bytes, 0).catch(() => ({ length: 0 }));
    this.#bytes = new Uint8Array(concat(this.#bytes, bytes.subarray(0, length)));
    return this.#bytes.length;
  }

  /** Waits until the daemon closed the connection. */
  async closed(): Promise<void> {
    for (;;) {
      try {
        await this.#receive();
      } catch (error) {
        if (error instanceof Error && error.message === 'closed') return;
        if (Reflect.get(Object(error), 'code') === 'ECONNRESET') return;
        throw error;
      }
    }
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    closeDescriptor(this.#fd);
  }

  async #receive(): Promise<void> {
    const bytes = new Uint8Array(64 * 1024);
    const { length, descriptor } = await receiveDescriptor(this.#fd, bytes, patience());
    if (length === 0) throw new Error('closed');
    if (descriptor !== undefined) this.#descriptor = descriptor;
    this.#bytes = new Uint8Array(concat(this.#bytes, bytes.subarray(0, length)));
  }
}
