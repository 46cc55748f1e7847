/** Maps shared memory of the daemon: asks for its descriptor by token, and maps it. */

import { closeDescriptor, sendNow } from '../../native-bridge/libc/descriptor.ts';
import { SharedMemory } from '../../native-bridge/libc/shared-memory.ts';
import {
  connectUnix,
  receiveDescriptor,
  shutdownSocket,
} from '../../native-bridge/libc/unix-socket.ts';
import type { MappingRef } from '../contract/commands.ts';
import { VerbsError } from '../contract/errors.ts';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitHello,
  FrameReader,
  parseTokenText,
  parseWelcome,
  Role,
} from '../contract/ipc-frames.ts';
import { MAP_REPLY_BYTES } from '../contract/ipc-records.ts';
import { refusal } from './daemon-connection.ts';

/** How long the daemon may take to answer. */
const REPLY_TIMEOUT_MS = 10_000;

/**
 * The map connection of a client. Node's sockets drop descriptors that come with octets, so this
 * one is read with recvmsg.
 */
export class DescriptorMapper {
  readonly #path: string;
  readonly #token: Uint8Array;
  #fd: number | undefined;
  #closed = false;
  /** Requests are answered in order, one at a time. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(path: string, clientToken: Uint8Array) {
    this.#path = path;
    this.#token = clientToken;
  }

  /** Maps what a reply named. Rejects with `VerbsError`. */
  map(mapping: MappingRef): Promise<Uint8Array> {
    const mapped = this.#last.then(() => this.#map(mapping));
    this.#last = mapped.catch(() => undefined);
    return mapped;
  }

  /** Ends the connection; a request that waits fails with EIO. */
  close(): void {
    this.#closed = true;
    if (this.#fd !== undefined) shutdownSocket(this.#fd);
    this.#last = this.#last.then(() => {
      if (this.#fd !== undefined) closeDescriptor(this.#fd);
      this.#fd = undefined;
    });
  }

  async #map(mapping: MappingRef): Promise<Uint8Array> {
    if (this.#closed) throw new VerbsError('EIO');
    try {
      this.#fd ??= await this.#open();
      const request = parseTokenText(mapping.token);
      if (sendNow(this.#fd, request) !== request.length) throw new VerbsError('EIO');
      const reply = new Uint8Array(MAP_REPLY_BYTES);
      const { length, descriptor } = await receiveDescriptor(this.#fd, reply, REPLY_TIMEOUT_MS);
      if (descriptor === undefined) {
        throw new VerbsError(length === 0 ? 'EIO' : 'ENOENT', 'the daemon has no such memory');
      }
      return SharedMemory.map(descriptor, mapping.lengthBytes).view;
    } catch (error) {
      if (error instanceof VerbsError) throw error;
      throw new VerbsError('EIO', `mapping shared memory: ${String(error)}`);
    }
  }

  async #open(): Promise<number> {
    const fd = connectUnix(this.#path);
    try {
      sendNow(fd, emitHello(Role.map, this.#token));
      let welcomed = false;
      const reader = new FrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => {
        const welcome = parseWelcome(frame);
        if (welcome.errno !== 0) throw refusal(welcome);
        welcomed = true;
      });
      const octets = new Uint8Array(256);
      while (!welcomed) {
        const { length } = await receiveDescriptor(fd, octets, REPLY_TIMEOUT_MS);
        if (length === 0) throw new VerbsError('EIO', 'the daemon closed the connection');
        reader.push(octets.subarray(0, length));
      }
      return fd;
    } catch (error) {
      closeDescriptor(fd);
      throw error;
    }
  }
}
