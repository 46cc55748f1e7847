/** Maps shared memory of the daemon: asks for its descriptor by token, and maps it. */
import type { MappingRef } from '#contract/protocol/commands';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitHello,
  GREETING_TIMEOUT_MS,
  IpcFrameReader,
  parseTokenText,
  parseWelcome,
  Role,
} from '#contract/protocol/ipc-frames';
import { MAP_REPLY_BYTES } from '#contract/protocol/ipc-records';
import { VerbsError } from '#contract/verbs/errors';
import { closeDescriptor, sendNow } from '#native-bridge/libc/descriptor';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import { connectUnix, receiveDescriptor, shutdownSocket } from '#native-bridge/libc/unix-socket';
import { refusal } from './daemon-connection.ts';
import { checkDaemon, type DaemonPlace } from './daemon-trust.ts';

/** Concurrent requests: as many as the socket accepts without blocking. */
const IN_FLIGHT_MAX = 64;

interface Request {
  readonly token: Uint8Array;
  readonly lengthBytes: number;
  readonly resolve: (view: Uint8Array) => void;
  readonly reject: (error: Error) => void;
}

/**
 * The map connection of a client. Node's sockets drop descriptors that come with bytes, so this
 * one is read with recvmsg. Requests are answered in order.
 */
export class DescriptorMapper {
  readonly #place: DaemonPlace;
  readonly #token: Uint8Array;
  #fd: number | undefined;
  #closed = false;
  /** Requested and not sent yet; sent and not answered yet. */
  readonly #queued: Request[] = [];
  readonly #sent: Request[] = [];
  #working = false;
  /** Memory that several objects share, by its token. */
  readonly #regions = new Map<string, Promise<Uint8Array>>();

  constructor(place: DaemonPlace, clientToken: Uint8Array) {
    this.#place = place;
    this.#token = clientToken;
  }

  /** Maps the memory named in a reply. Rejects with `VerbsError`. */
  async map(mapping: MappingRef): Promise<Uint8Array> {
    const { token, lengthBytes, within } = mapping;
    if (within === undefined) return await this.#request(token, lengthBytes);
    let region = this.#regions.get(token);
    if (region === undefined) {
      region = this.#request(token, within.lengthBytes);
      this.#regions.set(token, region);
      region.catch(() => this.#regions.delete(token));
    }
    return partOf(await region, within.offset, lengthBytes);
  }

  #request(token: string, lengthBytes: number): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw new VerbsError('EIO');
      this.#queued.push({ token: parseTokenText(token), lengthBytes, resolve, reject });
      if (this.#working) {
        if (this.#fd !== undefined) this.#send(this.#fd);
        return;
      }
      this.#working = true;
      void this.#work();
    });
  }

  /** Ends the connection; waiting requests fail with EIO. */
  close(): void {
    this.#closed = true;
    if (this.#fd === undefined) return;
    shutdownSocket(this.#fd);
    // The loop that waits on the descriptor closes it when it wakes.
    if (!this.#working) this.#closeDescriptor();
  }

  /** Sends and receives until no request is left. */
  async #work(): Promise<void> {
    try {
      this.#fd ??= await this.#open();
      this.#send(this.#fd);
      while (this.#sent.length > 0) {
        await this.#receive(this.#fd);
        this.#send(this.#fd);
      }
    } catch (error) {
      this.#fail(error instanceof VerbsError ? error : new VerbsError('EIO', String(error)));
    }
    this.#working = false;
    if (this.#closed) this.#closeDescriptor();
  }

  #send(fd: number): void {
    while (this.#sent.length < IN_FLIGHT_MAX) {
      const request = this.#queued.shift();
      if (request === undefined) return;
      this.#sent.push(request);
      // A lost connection is detected while awaiting the answer.
      sendNow(fd, request.token);
    }
  }

  async #receive(fd: number): Promise<void> {
    const reply = new Uint8Array(MAP_REPLY_BYTES);
    const { length, descriptor } = await receiveDescriptor(fd, reply, GREETING_TIMEOUT_MS);
    if (length === 0) throw new VerbsError('EIO', 'the daemon ended or closed the connection');
    const request = this.#sent.shift();
    if (descriptor === undefined || request === undefined) {
      request?.reject(new VerbsError('ENOENT', 'the daemon has no such memory'));
      return;
    }
    try {
      request.resolve(SharedMemory.map(descriptor, request.lengthBytes).view);
    } catch (error) {
      request.reject(new VerbsError('ENOMEM', `mapping shared memory: ${String(error)}`));
    }
  }

  /** Fails all requests; the next one starts over. */
  #fail(error: VerbsError): void {
    this.#closeDescriptor();
    for (const { reject } of [...this.#sent.splice(0), ...this.#queued.splice(0)]) reject(error);
  }

  #closeDescriptor(): void {
    if (this.#fd !== undefined) closeDescriptor(this.#fd);
    this.#fd = undefined;
  }

  async #open(): Promise<number> {
    const fd = connectUnix(this.#place.path);
    try {
      checkDaemon(fd, this.#place);
      sendNow(fd, emitHello(Role.map, this.#token));
      let welcomed = false;
      const reader = new IpcFrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => {
        const welcome = parseWelcome(frame);
        if (welcome.errno !== 0) throw refusal(welcome);
        welcomed = true;
      });
      const bytes = new Uint8Array(256);
      while (!welcomed) {
        const { length } = await receiveDescriptor(fd, bytes, GREETING_TIMEOUT_MS);
        if (length === 0) throw new VerbsError('EIO', 'the daemon closed the connection');
        reader.push(bytes.subarray(0, length));
      }
      return fd;
    } catch (error) {
      closeDescriptor(fd);
      throw error;
    }
  }
}

/** Rings are aligned for their 64-bit fields. */
const PART_ALIGNMENT_BYTES = 8;

/** A part of a mapping. EPROTO if it exceeds the mapping or is not aligned. */
function partOf(region: Uint8Array, offset: number, lengthBytes: number): Uint8Array {
  const fits = offset >= 0 && lengthBytes >= 1 && offset + lengthBytes <= region.length;
  if (fits && offset % PART_ALIGNMENT_BYTES === 0) {
    return region.subarray(offset, offset + lengthBytes);
  }
  const where = `${lengthBytes} bytes at ${offset} of ${region.length}`;
  throw new VerbsError('EPROTO', `the daemon refers to memory that it does not share: ${where}`);
}
