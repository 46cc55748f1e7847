/** The tester's connection to an iWARP peer over TCP. Rows send and receive FPDU by FPDU. */
import { connect, type Socket } from 'node:net';
import { VerbsError } from '#contract/verbs/errors';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import {
  DDPControl,
  type DDPHeader,
  ddpHeaderBytes,
  readDDPHeader,
} from '#daemon/iwarp/wire/ddp-header';
import {
  FPDU_CRC_BYTES,
  fpduSizeBytes,
  padBytes,
  ULPDU_LENGTH_BYTES,
} from '#daemon/iwarp/wire/fpdu';
import { QueueNumber, RDMAPControl, RDMAPOpcode } from '#daemon/iwarp/wire/rdmap-header';
import {
  emitStartupFrame,
  parseStartupFrame,
  type StartupFrame,
  startupFrameBytesNeeded,
  startupFrameSizeBytes,
} from '#daemon/iwarp/wire/startup-frame';
import { parseTerminate, type ReceivedTerminate } from '#daemon/iwarp/wire/terminate';
import { Inbox } from './inbox.ts';
import { type Offer, parseOffer } from './offer.ts';
import { Deviation, demand } from './row.ts';

/** Bytes buffered during startup: enough for a Reply, and for FPDUs that come too early. */
const EARLY_MAX_BYTES = 65_536;
/** Depth of RDMA Reads, in either direction, that the tester negotiates. */
const DEPTH = 4;

/** A DDP segment from the peer. */
export interface PeerSegment {
  readonly header: DDPHeader;
  readonly payload: Uint8Array;
  /** As sent: DDP header and payload. */
  readonly ulpdu: Uint8Array;
  readonly padding: Uint8Array;
  readonly crcRight: boolean;
}

/** A segment from the peer, or the end of its stream. */
type Received = PeerSegment | 'end';

/** Fields of the startup frame that a row changes. */
export type RequestFrame = Partial<
  Pick<StartupFrame, 'revision' | 'enhanced' | 'crc' | 'markers' | 'privateData'>
>;

const USUAL: StartupFrame = {
  kind: 'request',
  markers: false,
  crc: true,
  rejected: false,
  revision: 2,
  enhanced: {
    peerToPeer: false,
    rtr: { send: false, write: false, read: false },
    ird: DEPTH,
    ord: DEPTH,
  },
  privateData: new Uint8Array(0),
};

/** A TCP connection to the peer, before and after startup. */
export class IwarpConnection {
  readonly #socket: Socket;
  readonly #inbox: Inbox<Received>;
  readonly #bytes: Inbox<'bytes' | 'end'>;
  #buffer = Buffer.alloc(0);
  #started = false;
  #ended = false;
  #reply: StartupFrame | undefined;
  #errorCode: string | undefined;
  #sent = 0;
  #reads = 0;

  private constructor(socket: Socket, patienceMs: number) {
    this.#socket = socket;
    this.#inbox = new Inbox<Received>(patienceMs, segmentText);
    this.#bytes = new Inbox(patienceMs);
    socket.setNoDelay(true);
    socket.on('data', (bytes) => this.#take(bytes));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.#errorCode = error.code;
      this.#end();
    });
    socket.on('close', () => this.#end());
    socket.on('end', () => this.#end());
  }

  /**
   * Connects by TCP. Throws `Deviation` if nothing listens, `VerbsError` EADDRNOTAVAIL if `from` is
   * no address of this host.
   */
  static async dial(
    {
      from,
      to,
      port,
    }: { readonly from: string | undefined; readonly to: string; readonly port: number },
    patienceMs: number,
  ): Promise<IwarpConnection> {
    const local = from === undefined ? {} : { localAddress: from };
    const socket = connect({ host: to, port, allowHalfOpen: true, ...local });
    const connection = new IwarpConnection(socket, patienceMs);
    const timer = setTimeout(() => socket.destroy(), patienceMs);
    const connected = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true));
      socket.once('close', () => resolve(false));
    });
    clearTimeout(timer);
    if (connection.#errorCode === 'EADDRNOTAVAIL' && from !== undefined) {
      const text = `this host has no address ${from}; give one of its own (--from)`;
      throw new VerbsError('EADDRNOTAVAIL', text);
    }
    if (!connected) throw new Deviation(`${to} port ${port} does not accept TCP connections`);
    return connection;
  }

  /** Sends a Request and waits for the accepting Reply. Throws `Deviation`. */
  async start(given: RequestFrame = {}): Promise<StartupFrame> {
    this.sendFrame(given);
    const reply = await this.replyFrame();
    demand(typeof reply !== 'string', `the Reply is not valid: ${reply}`);
    demand(!reply.rejected, 'the peer rejected the connection');
    this.#started = true;
    this.#reply = reply;
    this.#cut();
    this.#socket.resume();
    return reply;
  }

  sendFrame(given: RequestFrame = {}, change: (frame: Uint8Array) => void = () => {}): void {
    const frame = { ...USUAL, ...given };
    const bytes = new Uint8Array(startupFrameSizeBytes(frame));
    emitStartupFrame(frame, bytes);
    change(bytes);
    this.#socket.write(bytes);
  }

  /**
   * The Reply, or why the received frame is not one. Throws `Deviation` if the connection ends
   * before it.
   */
  async replyFrame(): Promise<ReturnType<typeof parseStartupFrame>> {
    for (;;) {
      const needed = startupFrameBytesNeeded(this.#buffer, this.#buffer.length, 'reply');
      if (typeof needed === 'string') return needed;
      if (this.#buffer.length >= needed) {
        const frame = Uint8Array.from(this.#buffer.subarray(0, needed));
        this.#buffer = this.#buffer.subarray(needed);
        return parseStartupFrame(frame, 'reply');
      }
      const what = await this.#bytes.next('a Reply', () => true);
      demand(what === 'bytes', 'the peer closed the connection without a Reply');
    }
  }

  get offer(): Offer | undefined {
    return this.#reply === undefined ? undefined : parseOffer(this.#reply.privateData);
  }

  /** Received bytes that are not a whole FPDU yet. */
  get unread(): Uint8Array {
    return this.#buffer;
  }

  close(): void {
    this.#socket.destroy();
  }

  /** Sends bytes as a separate TCP segment. */
  async sendAlone(bytes: Uint8Array): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#socket.write(bytes, () => setImmediate(resolve));
    });
  }

  /** Sends a segment in an FPDU. `change` corrupts the FPDU after its CRC is computed. */
  sendUlpdu(ulpdu: Uint8Array, change: (fpdu: Uint8Array) => void = () => {}): void {
    const fpdu = fpduOf(ulpdu);
    change(fpdu);
    this.#socket.write(fpdu);
  }

  /** MSN of the next message of a queue. */
  nextSendMsn(): number {
    this.#sent += 1;
    return this.#sent;
  }

  nextReadMsn(): number {
    this.#reads += 1;
    return this.#reads;
  }

  /** The peer's next segment. Throws `Deviation` if none comes. */
  async segment(what: string): Promise<PeerSegment> {
    const received = await this.#inbox.next(what, () => true);
    if (received === 'end')
      throw new Deviation(`expected ${what}, but the peer closed the connection`);
    return received;
  }

  /** The peer's next segment, or the end of the connection. Throws `Deviation` if neither comes. */
  segmentOrEnd(): Promise<Received> {
    return this.#inbox.next('a segment or the end of the connection', () => true);
  }

  /** The peer's Terminate; drops segments before it. Throws `Deviation` if none comes. */
  async terminate(): Promise<ReceivedTerminate> {
    for (;;) {
      const segment = await this.segment('a Terminate');
      const { header } = segment;
      if (!header.tagged && header.qn === QueueNumber.terminate) return terminateIn(segment);
    }
  }

  /** Waits until the peer has closed or reset the connection. Throws `Deviation` if it does not. */
  async over(): Promise<void> {
    if (this.#ended) return;
    const over = (received: Received): boolean => received === 'end';
    if (this.#started) await this.#inbox.next('the end of the connection', over);
    else await this.#bytes.next('the end of the connection', (what) => what === 'end');
  }

  #take(bytes: Uint8Array): void {
    this.#buffer = Buffer.concat([this.#buffer, bytes]);
    this.#bytes.push('bytes');
    if (this.#started) this.#cut();
    else if (this.#buffer.length > EARLY_MAX_BYTES) this.#socket.pause();
  }

  #cut(): void {
    for (;;) {
      if (this.#buffer.length < ULPDU_LENGTH_BYTES) return;
      const length = this.#buffer.readUInt16BE(0);
      const size = fpduSizeBytes(length);
      if (this.#buffer.length < size) return;
      const fpdu = Uint8Array.from(this.#buffer.subarray(0, size));
      this.#buffer = this.#buffer.subarray(size);
      const segment = segmentOf(fpdu, length);
      if (segment !== undefined) this.#inbox.push(segment);
    }
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#inbox.push('end');
    this.#bytes.push('end');
  }
}

/** The FPDU around a ULPDU, without markers (RFC 5044 §4). */
export function fpduOf(ulpdu: Uint8Array): Uint8Array {
  const bytes = Buffer.alloc(fpduSizeBytes(ulpdu.length));
  bytes.writeUInt16BE(ulpdu.length, 0);
  bytes.set(ulpdu, ULPDU_LENGTH_BYTES);
  const covered = bytes.length - FPDU_CRC_BYTES;
  bytes.writeUInt32LE(crc32c(bytes.subarray(0, covered)), covered);
  return bytes;
}

function segmentOf(fpdu: Uint8Array, length: number): PeerSegment | undefined {
  const ulpdu = fpdu.subarray(ULPDU_LENGTH_BYTES, ULPDU_LENGTH_BYTES + length);
  const header = readDDPHeader(ulpdu, 0, length);
  if (header === undefined) return undefined;
  const covered = fpdu.length - FPDU_CRC_BYTES;
  const sent = Buffer.from(fpdu.buffer, fpdu.byteOffset + covered, FPDU_CRC_BYTES).readUInt32LE(0);
  const end = ULPDU_LENGTH_BYTES + length;
  return {
    header,
    ulpdu,
    payload: ulpdu.subarray(ddpHeaderBytes(ulpdu[0] as number)),
    padding: fpdu.subarray(end, end + padBytes(length)),
    crcRight: crc32c(fpdu.subarray(0, covered)) === sent,
  };
}

/** The Terminate in a segment. Throws `Deviation` if it is another message. */
export function terminateIn(segment: PeerSegment): ReceivedTerminate {
  const { header, payload } = segment;
  const is = (header.ulp & RDMAPControl.opcode) === RDMAPOpcode.terminate;
  demand(is, `expected a Terminate, received ${segmentText(segment)}`);
  const terminate = parseTerminate(payload, 0, payload.length);
  if (terminate === undefined) throw new Deviation('the Terminate is too short');
  return terminate;
}

/** A segment in a few words. */
export function segmentText(received: Received): string {
  if (received === 'end') return 'the end of the connection';
  const { header, payload } = received;
  const opcode = header.ulp & RDMAPControl.opcode;
  const queue = header.tagged ? 'tagged' : `QN ${header.qn}, MSN ${header.msn}`;
  return `a segment of opcode ${opcode} (${queue}, ${payload.length} bytes)`;
}

/** True if the reserved bits of a DDP control byte are 0. */
export function hasCleanControl(control: number): boolean {
  return (control & DDPControl.reserved) === 0;
}
