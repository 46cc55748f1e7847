/**
 * The protocol of rping, without I/O: the messages, the ping text, and the order of the steps on
 * either side. It is that of rdma-core (`librdmacm`, example program rping), so either end can be the
 * original. One ping:
 *
 *     client                                   server
 *       | Send: advert of the source buffer ->   |
 *       |        <- RDMA Read of the source      |   prints the text
 *       |                   <- Send: go ahead    |
 *       | Send: advert of the sink buffer ->     |
 *       |        <- RDMA Write of the text       |   up to its NUL
 *       |                   <- Send: go ahead    |
 *
 * An advert, and a go-ahead whose content is ignored, is 16 bytes in network order:
 *
 *      0                   8           12          16
 *     +-------------------+-----------+-----------+
 *     | address (TO)      | rkey      | size      |
 *     +-------------------+-----------+-----------+
 */

/** Bytes of an advert or a go-ahead. */
export const ADVERT_BYTES = 16;
export const DEFAULT_PORT = 7174;
/** Default size of a ping, in bytes. */
export const DEFAULT_SIZE_BYTES = 64;
/** Room for the text of the largest ping number and its NUL. */
export const MIN_SIZE_BYTES = 23;
/** rdma-core's rping accepts one byte less, whatever its message says; its server rejects this size. */
export const MAX_SIZE_BYTES = 65536;

const FIRST_LETTER = 65;
const LETTER_COUNT = 58;

/** Identifies a buffer of the client to the server. */
export interface Advert {
  readonly address: bigint;
  readonly rkey: number;
  /** Bytes. */
  readonly size: number;
}

/** Writes `advert` to `target`, which holds exactly `ADVERT_BYTES`. RangeError for another length. */
export function emitAdvert(advert: Advert, target: Uint8Array): void {
  if (target.length !== ADVERT_BYTES) {
    throw new RangeError(`an advert is ${ADVERT_BYTES} bytes, the target ${target.length}`);
  }
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  view.setBigUint64(0, advert.address);
  view.setUint32(8, advert.rkey);
  view.setUint32(12, advert.size);
}

/** Reads an advert; undefined if `bytes` are not exactly `ADVERT_BYTES`. */
export function parseAdvert(bytes: Uint8Array): Advert | undefined {
  if (bytes.length !== ADVERT_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { address: view.getBigUint64(0), rkey: view.getUint32(8), size: view.getUint32(12) };
}

/**
 * Fills `buffer` with ping number `ping`: `rdma-ping-N: `, then the letters from A to z, starting one
 * letter later at each ping, and a NUL at the end.
 */
export function fillPing(buffer: Uint8Array, ping: number): void {
  const head = `rdma-ping-${ping}: `;
  for (let index = 0; index < buffer.length - 1; index++) {
    buffer[index] =
      index < head.length
        ? head.charCodeAt(index)
        : FIRST_LETTER + ((ping + index - head.length) % LETTER_COUNT);
  }
  buffer[buffer.length - 1] = 0;
}

/** Length of the text in `buffer` with its NUL; all bytes if there is no NUL. */
export function textSizeBytes(buffer: Uint8Array): number {
  const end = buffer.indexOf(0);
  return end < 0 ? buffer.length : end + 1;
}

/** The text in `buffer` up to its NUL, one character for each byte. */
export function pingText(buffer: Uint8Array): string {
  const end = buffer.indexOf(0);
  const text = end < 0 ? buffer : buffer.subarray(0, end);
  let result = '';
  for (const byte of text) result += String.fromCharCode(byte);
  return result;
}

/** Index of the first byte in which two buffers differ; undefined if they are equal. */
export function firstDifference(left: Uint8Array, right: Uint8Array): number | undefined {
  const common = Math.min(left.length, right.length);
  for (let index = 0; index < common; index++) {
    if (left[index] !== right[index]) return index;
  }
  return left.length === right.length ? undefined : common;
}

export type ServerStep =
  | { readonly type: 'read'; readonly source: Advert }
  | { readonly type: 'write'; readonly sink: Advert }
  /** Send a go-ahead; `after` says which half of the ping is complete. */
  | { readonly type: 'go-ahead'; readonly after: 'read' | 'write' }
  | { readonly type: 'fault'; readonly text: string };

/** The server's order of steps. */
export class ServerSequence {
  readonly #sizeLimitBytes: number;
  #state: 'idle' | 'reading' | 'read' | 'writing' = 'idle';
  #pings = 0;

  /** `sizeLimitBytes`: length of the buffer for reads. */
  constructor(sizeLimitBytes: number) {
    this.#sizeLimitBytes = sizeLimitBytes;
  }

  get pings(): number {
    return this.#pings;
  }

  /** True between two pings, when the client may disconnect without interrupting anything. */
  get betweenPings(): boolean {
    return this.#state === 'idle';
  }

  /** A Send of the client arrived. */
  handleReceive(bytes: Uint8Array): ServerStep {
    const advert = parseAdvert(bytes);
    if (advert === undefined) {
      return fault(`the client sent ${bytes.length} bytes where an advert has ${ADVERT_BYTES}`);
    }
    if (this.#state === 'idle') {
      if (advert.size > this.#sizeLimitBytes) {
        return fault(
          `the client offers ${advert.size} bytes, more than the ${this.#sizeLimitBytes} of this server (-S)`,
        );
      }
      this.#state = 'reading';
      return { type: 'read', source: advert };
    }
    if (this.#state === 'read') {
      this.#state = 'writing';
      return { type: 'write', sink: advert };
    }
    return fault(`the client sent an advert while the server was ${this.#state}`);
  }

  handleReadDone(): ServerStep {
    if (this.#state !== 'reading') return fault(`a read completed in state ${this.#state}`);
    this.#state = 'read';
    return { type: 'go-ahead', after: 'read' };
  }

  handleWriteDone(): ServerStep {
    if (this.#state !== 'writing') return fault(`a write completed in state ${this.#state}`);
    this.#state = 'idle';
    this.#pings += 1;
    return { type: 'go-ahead', after: 'write' };
  }
}

export type ClientStep =
  /** Fill the source buffer with this ping and send its advert. */
  | { readonly type: 'advertise-source'; readonly ping: number }
  | { readonly type: 'advertise-sink' }
  /** The text has returned: check and show it, then call `next`. */
  | { readonly type: 'pong'; readonly ping: number }
  | { readonly type: 'done' }
  | { readonly type: 'fault'; readonly text: string };

/** The client's order of steps. */
export class ClientSequence {
  readonly #count: number;
  #state: 'idle' | 'source-advertised' | 'sink-advertised' = 'idle';
  #pings = 0;

  /** `count`: number of pings, 0 for no limit. */
  constructor(count: number) {
    this.#count = count;
  }

  get pings(): number {
    return this.#pings;
  }

  /** Starts the next ping, or ends. */
  next(): ClientStep {
    if (this.#state !== 'idle') return fault(`a ping was started in state ${this.#state}`);
    if (this.#count > 0 && this.#pings >= this.#count) return { type: 'done' };
    this.#state = 'source-advertised';
    return { type: 'advertise-source', ping: this.#pings };
  }

  /** A go-ahead of `lengthBytes` bytes arrived. */
  handleReceive(lengthBytes: number): ClientStep {
    if (lengthBytes !== ADVERT_BYTES) {
      return fault(`the server sent ${lengthBytes} bytes where a go-ahead has ${ADVERT_BYTES}`);
    }
    if (this.#state === 'source-advertised') {
      this.#state = 'sink-advertised';
      return { type: 'advertise-sink' };
    }
    if (this.#state === 'sink-advertised') {
      this.#state = 'idle';
      this.#pings += 1;
      return { type: 'pong', ping: this.#pings - 1 };
    }
    return fault('the server sent an unexpected go-ahead');
  }
}

function fault(text: string): { readonly type: 'fault'; readonly text: string } {
  return { type: 'fault', text };
}
