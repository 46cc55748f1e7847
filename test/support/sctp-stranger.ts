/** A host without an association, which requests some, each from another UDP port. */
import { createSocket, type Socket } from 'node:dgram';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { bytesOf } from './hex.ts';
import { until } from './patience.ts';

const UDP_PORT = 9899;
const [DESTINATION_AT, CHECKSUM_AT] = [2, 8];
/** INIT with the adaptation indication of DDP (RFC 9260 section 3.3.2, RFC 5043 section 5.1). */
const INIT = bytesOf(
  '1388 0000 00000000 00000000 01 00 001c 01020304 00020000 0001 0001 00000009 c006 0008 00000001',
);

export class SctpStranger {
  readonly #sockets: Socket[] = [];
  readonly #packet: Uint8Array;
  readonly #to: string;
  #used = 0;
  #answers = 0;

  /** `port`: SCTP's. */
  constructor(to: string, port: number) {
    this.#to = to;
    this.#packet = INIT.slice();
    const fields = new DataView(this.#packet.buffer);
    fields.setUint16(DESTINATION_AT, port);
    fields.setUint32(CHECKSUM_AT, crc32c(this.#packet), true);
  }

  /** Opens UDP ports of `address` for this many requests. */
  async open(address: string, requests: number): Promise<void> {
    for (let count = 0; count < requests; count += 1) {
      const socket = createSocket('udp4');
      socket.on('message', () => {
        this.#answers += 1;
      });
      await new Promise<void>((resolve) => socket.bind(0, address, resolve));
      this.#sockets.push(socket);
    }
  }

  /** Sends this many requests, each after the answer to the previous one. */
  async sendRequests(times: number): Promise<void> {
    for (const socket of this.#sockets.slice(this.#used, this.#used + times)) {
      this.#used += 1;
      const before = this.#answers;
      socket.send(this.#packet, UDP_PORT, this.#to);
      await until('an answer to a request', () => this.#answers > before);
    }
  }

  close(): void {
    for (const socket of this.#sockets) socket.close();
  }
}
