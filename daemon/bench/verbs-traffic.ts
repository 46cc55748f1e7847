/**
 * Data over one connection of the bench, from either end. Every exchange ends with a message from the
 * twin, so that results count data that arrived, not data passed to a socket.
 */
import type { WC } from '#contract/verbs/completion';
import {
  Access,
  SendFlag,
  WC_STATUS_TEXT,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { ConnectionId, Context, CQ, MR, PD, QP } from '#contract/verbs/provider';
import type { RecvWR, SendWR } from '#contract/verbs/work-request';

export interface BenchMemory {
  readonly address: bigint;
  readonly rkey: number;
}

/** Bytes of the region that RDMA Writes read from and write to. */
const REGION_BYTES = 4 * 1024 * 1024;
/**
 * Bytes that successive writes use, in rotation. If they exceeded the processor's cache, the result
 * would measure memory, unlike that of raw TCP, which reuses one buffer.
 */
export const WRITE_WINDOW_BYTES = 512 * 1024;
/** Bytes of the largest message. */
const MESSAGE_BYTES = 64;
const SEND_DEPTH = 512;
/** Receives that are always posted, in addition to those of a batch. */
const RECEIVE_DEPTH = 4096;
/** Receives posted with one call. */
const RECEIVE_BATCH = 64;
/** Messages that the receiver of a stream takes before it permits the sender to send as many again. */
const CREDIT_BATCH = 1024;
const POLL_MAX = 256;
/**
 * One in this many Sends of a ping-pong is signalled, as in other RDMA latency tests: the reply already
 * shows that a Send arrived, so a completion for each would wake the client needlessly.
 */
const SIGNAL_INTERVAL = 64;

/** One end of a connection, ready for traffic. */
export class VerbsTraffic {
  readonly #id: ConnectionId;
  readonly #cq: CQ;
  readonly #qp: QP;
  readonly #region: MR;
  readonly #receives: MR;
  readonly #receiveBatch: readonly RecvWR[];
  readonly #word: SendWR;
  #consumedReceives = 0;
  /** Unsignalled Sends since the last signalled one. */
  #unsignalled = 0;
  #arrived = 0;
  #outstanding = 0;

  private constructor(id: ConnectionId, cq: CQ, qp: QP, region: MR, receives: MR) {
    this.#id = id;
    this.#cq = cq;
    this.#qp = qp;
    this.#region = region;
    this.#receives = receives;
    this.#receiveBatch = Array.from({ length: RECEIVE_BATCH }, (_, slot) => ({
      sgList: [receives.sge(slot * MESSAGE_BYTES, MESSAGE_BYTES)],
    }));
    this.#word = this.#message(MESSAGE_BYTES >> 3);
    for (let posted = 0; posted < RECEIVE_DEPTH; posted += RECEIVE_BATCH) {
      qp.postRecv(this.#receiveBatch);
    }
  }

  /** Creates the QP of an id that knows its device. Takes ownership of `id`. */
  static async create(context: Context, pd: PD, id: ConnectionId): Promise<VerbsTraffic> {
    const cq = await context.createCQ({ cqe: RECEIVE_DEPTH + SEND_DEPTH });
    const qp = await id.createQP(pd, {
      sendCQ: cq,
      recvCQ: cq,
      maxSendWr: SEND_DEPTH,
      maxRecvWr: RECEIVE_DEPTH,
      maxInlineData: MESSAGE_BYTES,
    });
    const region = await pd.allocMR(REGION_BYTES, Access.localWrite | Access.remoteWrite);
    const receives = await pd.allocMR(RECEIVE_BATCH * MESSAGE_BYTES, Access.localWrite);
    return new VerbsTraffic(id, cq, qp, region, receives);
  }

  get memory(): BenchMemory {
    return { address: this.#region.address, rkey: this.#region.rkey };
  }

  get bytes(): Uint8Array {
    return this.#region.buffer;
  }

  async close(): Promise<void> {
    await this.#id.close();
    await this.#region.close();
    await this.#receives.close();
    await this.#cq.close();
  }

  /** Sends `count` RDMA Writes of `writeBytes`, `batch` per post, and waits until all arrived. */
  async write(remote: BenchMemory, writeBytes: number, count: number, batch: number) {
    const places = Math.max(1, Math.min(batch, Math.floor(WRITE_WINDOW_BYTES / writeBytes)));
    const requests: SendWR[] = Array.from({ length: batch }, (_, index) => {
      const offset = (index % places) * writeBytes;
      return {
        wrId: batch,
        opcode: WROpcode.rdmaWrite,
        sgList: [this.#region.sge(offset, writeBytes)],
        remoteAddr: remote.address + BigInt(offset),
        rkey: remote.rkey,
        flags: index === batch - 1 ? SendFlag.signaled : 0,
      };
    });
    for (let posted = 0; posted < count; posted += batch) {
      await this.#room(batch);
      this.#post(requests);
    }
    await this.#sendWord();
    await this.#take();
  }

  /** The twin's part of `write`: waits for the final message and replies. */
  async answer(): Promise<void> {
    await this.#take();
    await this.#sendWord();
  }

  /** Sends `count` messages to a twin that echoes them, each after the previous echo. */
  async ping(sizeBytes: number, count: number): Promise<void> {
    const post = this.#pingPoster(sizeBytes);
    for (let done = 0; done < count; done++) {
      await this.#room(1);
      post();
      await this.#take();
    }
  }

  /** The twin's part of `ping`. */
  async echo(sizeBytes: number, count: number): Promise<void> {
    const post = this.#pingPoster(sizeBytes);
    for (let done = 0; done < count; done++) {
      await this.#take();
      await this.#room(1);
      post();
    }
  }

  /** Sends `count` messages, `batch` per post, and waits until all arrived. */
  async sendStream(sizeBytes: number, count: number, batch: number): Promise<void> {
    const message = this.#message(sizeBytes);
    const requests: SendWR[] = Array.from({ length: batch }, (_, index) => ({
      ...message,
      wrId: batch,
      flags: SendFlag.inline | (index === batch - 1 ? SendFlag.signaled : 0),
    }));
    let credits = RECEIVE_DEPTH - CREDIT_BATCH;
    let words = 0;
    for (let posted = 0; posted < count; posted += batch) {
      while (credits < batch) {
        await this.#take();
        words += 1;
        credits += CREDIT_BATCH;
      }
      await this.#room(batch);
      this.#post(requests);
      credits -= batch;
    }
    for (; words < Math.floor(count / CREDIT_BATCH); words++) await this.#take();
  }

  /** The twin's part of `sendStream`. */
  async receiveStream(count: number): Promise<void> {
    let taken = 0;
    let unsaid = 0;
    while (taken < count) {
      while (this.#arrived === 0) await this.#progress();
      const arrived = Math.min(this.#arrived, count - taken);
      this.#arrived -= arrived;
      taken += arrived;
      unsaid += arrived;
      for (; unsaid >= CREDIT_BATCH; unsaid -= CREDIT_BATCH) await this.#sendWord();
    }
  }

  #message(sizeBytes: number): SendWR {
    return {
      wrId: 1,
      opcode: WROpcode.send,
      flags: SendFlag.inline | SendFlag.signaled,
      inlineData: new Uint8Array(sizeBytes).fill(0x5a),
    };
  }

  /** Posts one message of a ping-pong; every `SIGNAL_INTERVAL`th one is signalled. */
  #pingPoster(sizeBytes: number): () => void {
    const signalled: SendWR = { ...this.#message(sizeBytes), wrId: SIGNAL_INTERVAL };
    const unsignalled: SendWR = { ...signalled, flags: SendFlag.inline };
    return () => {
      this.#unsignalled = (this.#unsignalled + 1) % SIGNAL_INTERVAL;
      this.#post(this.#unsignalled === 0 ? signalled : unsignalled);
    };
  }

  #post(requests: SendWR | readonly SendWR[]): void {
    this.#qp.postSend(requests);
    this.#outstanding += 'length' in requests ? requests.length : 1;
  }

  async #sendWord(): Promise<void> {
    await this.#room(1);
    this.#post(this.#word);
  }

  /** Waits until the send queue has room for `count` more. */
  async #room(count: number): Promise<void> {
    while (this.#outstanding + count > SEND_DEPTH) await this.#progress();
  }

  /** Waits for a message and takes it. */
  async #take(): Promise<void> {
    while (this.#arrived === 0) await this.#progress();
    this.#arrived -= 1;
  }

  /** Waits for a completion and takes all. */
  async #progress(): Promise<void> {
    let completions: readonly WC[] = this.#cq.poll(POLL_MAX);
    if (completions.length === 0) completions = await this.#cq.wait({ max: POLL_MAX });
    for (const wc of completions) {
      if (wc.status !== WCStatus.success) {
        throw new Error(`a work request failed: ${wc.reason ?? WC_STATUS_TEXT[wc.status]}`);
      }
      if (wc.opcode === WCOpcode.recv) {
        this.#arrived += 1;
        this.#consumedReceives += 1;
      } else {
        this.#outstanding -= Number(wc.wrId);
      }
    }
    while (this.#consumedReceives >= RECEIVE_BATCH) {
      this.#qp.postRecv(this.#receiveBatch);
      this.#consumedReceives -= RECEIVE_BATCH;
    }
  }
}
