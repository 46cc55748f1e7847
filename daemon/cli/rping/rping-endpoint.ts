/**
 * One end of an rping connection over the verbs: its queue pair and buffers, its messages, and the
 * reason why the connection ended.
 */
import type { WC } from '#contract/verbs/completion';
import {
  Access,
  CMEventType,
  SendFlag,
  WC_STATUS_TEXT,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { ConnectionId, Context, CQ, MR, PD, QP, WireOptions } from '#contract/verbs/provider';
import { CommandFailure, failureText } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { ADVERT_BYTES, type Advert, emitAdvert } from './rping-protocol.ts';

export interface RpingSettings {
  /** The server's address, to bind or to connect to. */
  readonly address: string;
  readonly port: number;
  /** Client: the address to connect from. */
  readonly sourceAddress: string | undefined;
  /** Client: number of pings, 0 for no limit. */
  readonly count: number;
  readonly sizeBytes: number;
  /** Show each ping. */
  readonly verbose: boolean;
  /** Client: compare the returned data with the data sent. */
  readonly validate: boolean;
  /** Print each step to standard error. */
  readonly debug: boolean;
  /** Create the QP without the connection manager (`-q`). */
  readonly ownQP: boolean;
  /** Client: wire options of the connection. */
  readonly wire: WireOptions | undefined;
}

/** Depths of the queues, as in rdma-core's rping. */
const SEND_DEPTH = 16;
const RECEIVE_DEPTH = 2;
/** Time to wait for the reason of a connection's end after its work requests were flushed. */
const END_TIMEOUT_MS = 2000;

/** A Send of the peer, or the completion of an RDMA operation. */
type RpingEvent =
  | { readonly type: 'receive'; readonly bytes: Uint8Array }
  | { readonly type: 'read' }
  | { readonly type: 'write' }
  /** The connection has ended. */
  | { readonly type: 'disconnected' };

/** The objects of an endpoint. */
interface Parts {
  readonly role: 'client' | 'server';
  readonly id: ConnectionId;
  readonly context: Context;
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
  readonly receives: MR;
  /** Target of reads and source of writes (server); sink of the pong (client). */
  readonly data: MR;
  /** Source of the ping. */
  readonly source: MR;
}

export class RpingEndpoint {
  readonly data: MR;
  readonly source: MR;
  readonly #parts: Parts;
  readonly #debug: (text: string) => void;
  readonly #backlog: RpingEvent[] = [];
  readonly #ended: Promise<void>;
  #asyncText: string | undefined;
  #endText: string | undefined;

  private constructor(parts: Parts, output: Output, debug: (text: string) => void) {
    this.data = parts.data;
    this.source = parts.source;
    this.#parts = parts;
    this.#debug = debug;
    this.#ended = this.#watchConnection(output);
    void this.#watchDevice();
  }

  /**
   * Creates QP, CQ and buffers for an id whose device is known, and posts the receives. Takes
   * ownership of `id`.
   */
  static async create(
    role: 'client' | 'server',
    id: ConnectionId,
    settings: RpingSettings,
    output: Output,
  ): Promise<RpingEndpoint> {
    const debug = settings.debug ? output.note : () => {};
    const context = await id.provider.open(id.device);
    const pd = await context.allocPD();
    const cq = await context.createCQ({ cqe: SEND_DEPTH * 2 });
    const init = {
      sendCQ: cq,
      recvCQ: cq,
      maxSendWr: SEND_DEPTH,
      maxRecvWr: RECEIVE_DEPTH,
      maxInlineData: ADVERT_BYTES,
    };
    const qp = settings.ownQP ? await pd.createQP(init) : await id.createQP(pd, init);
    debug(`created QP ${qp.qpNum} on ${id.device ?? 'the first device'}`);
    const rights = Access.localWrite | Access.remoteRead | Access.remoteWrite;
    const receives = await pd.allocMR(ADVERT_BYTES * RECEIVE_DEPTH, Access.localWrite);
    const data = await pd.allocMR(settings.sizeBytes, rights);
    const source = role === 'client' ? await pd.allocMR(settings.sizeBytes, rights) : data;
    debug(`registered ${settings.sizeBytes} bytes, tier ${data.tier}: ${data.tierReason}`);
    const endpoint = new RpingEndpoint(
      { role, id, context, pd, cq, qp, receives, data, source },
      output,
      debug,
    );
    for (let slot = 0; slot < RECEIVE_DEPTH; slot++) endpoint.#postReceive(slot);
    return endpoint;
  }

  get qp(): QP {
    return this.#parts.qp;
  }

  /** Sends the advert of a buffer; the content of a go-ahead is irrelevant. */
  sendAdvert(mr: MR): void {
    const advert: Advert = { address: mr.address, rkey: mr.rkey, size: mr.length };
    const bytes = new Uint8Array(ADVERT_BYTES);
    emitAdvert(advert, bytes);
    this.#debug(
      `send: addr ${advert.address.toString(16)} rkey ${advert.rkey.toString(16)} len ${advert.size}`,
    );
    this.#parts.qp.postSend({
      opcode: WROpcode.send,
      flags: SendFlag.signaled | SendFlag.inline,
      inlineData: bytes,
    });
  }

  /** Reads the peer's advertised buffer into the start of `data`. */
  read(from: Advert): void {
    this.#debug(`read: addr ${from.address.toString(16)} rkey ${from.rkey.toString(16)}`);
    this.#parts.qp.postSend({
      opcode: WROpcode.rdmaRead,
      flags: SendFlag.signaled,
      sgList: [this.data.sge(0, from.size)],
      remoteAddr: from.address,
      rkey: from.rkey,
    });
  }

  /** Writes `lengthBytes` bytes from the start of `data` to the peer's advertised buffer. */
  write(to: Advert, lengthBytes: number): void {
    this.#debug(`write: addr ${to.address.toString(16)} rkey ${to.rkey.toString(16)}`);
    this.#parts.qp.postSend({
      opcode: WROpcode.rdmaWrite,
      flags: SendFlag.signaled,
      sgList: [this.data.sge(0, lengthBytes)],
      remoteAddr: to.address,
      rkey: to.rkey,
    });
  }

  /** The next event. CommandFailure if a work request fails. */
  async nextEvent(signal: AbortSignal): Promise<RpingEvent> {
    for (;;) {
      const event = this.#backlog.shift();
      if (event !== undefined) return event;
      for (const wc of await this.#parts.cq.wait({ signal })) await this.#handleCompletion(wc);
    }
  }

  /** Closes the connection gracefully, if it still exists, and waits for its end. */
  async disconnect(): Promise<void> {
    try {
      await this.#parts.id.disconnect();
      await this.#waitForEnd();
    } catch (error) {
      this.#debug(`disconnect: ${failureText(error)}`);
    }
  }

  async close(): Promise<void> {
    // The id closes its own QP; ours must be closed before the CQ that it uses.
    await this.#parts.id.close();
    await this.#parts.qp.close();
    for (const part of [
      this.data,
      this.source,
      this.#parts.receives,
      this.#parts.cq,
      this.#parts.pd,
    ]) {
      await part.close();
    }
    await this.#parts.context.close();
  }

  /** The reason for the connection's end, as the end of a sentence. */
  endReason(): string {
    const reason = this.#asyncText ?? this.#endText;
    return reason === undefined ? '' : ` (${reason})`;
  }

  #postReceive(slot: number): void {
    this.#parts.qp.postRecv({
      wrId: slot,
      sgList: [this.#parts.receives.sge(slot * ADVERT_BYTES, ADVERT_BYTES)],
    });
  }

  async #handleCompletion(wc: WC): Promise<void> {
    if (wc.status === WCStatus.wrFlushErr) {
      // Further flushed work requests add no information.
      if (this.#backlog.some((event) => event.type === 'disconnected')) return;
      await this.#waitForEnd();
      this.#backlog.push({ type: 'disconnected' });
      return;
    }
    if (wc.status !== WCStatus.success) {
      await this.#waitForEnd();
      throw new CommandFailure(
        `${operationText(wc)} failed: ${wc.reason ?? WC_STATUS_TEXT[wc.status]}${this.endReason()}`,
      );
    }
    if (wc.opcode === WCOpcode.recv) {
      const slot = Number(wc.wrId);
      const start = slot * ADVERT_BYTES;
      const bytes = this.#parts.receives.buffer.slice(start, start + wc.byteLen);
      this.#postReceive(slot);
      this.#debug(`received ${wc.byteLen} bytes: ${Buffer.from(bytes).toString('hex')}`);
      this.#backlog.push({ type: 'receive', bytes });
    } else if (wc.opcode === WCOpcode.rdmaRead) {
      this.#debug('read completed');
      this.#backlog.push({ type: 'read' });
    } else if (wc.opcode === WCOpcode.rdmaWrite) {
      this.#debug('write completed');
      this.#backlog.push({ type: 'write' });
    }
  }

  /** Processes the connection's events until its end. */
  async #watchConnection(output: Output): Promise<void> {
    try {
      for await (const event of this.#parts.id.events()) {
        this.#debug(`connection event: ${event.text}`);
        if (event.type === CMEventType.disconnected) {
          output.note(`${this.#parts.role} DISCONNECT EVENT...`);
          // A graceful end adds nothing to the caller's message.
          if (event.text !== 'disconnected') this.#endText = event.text;
          return;
        }
        if (event.type === CMEventType.deviceRemoval) {
          this.#endText = 'the device was removed';
          return;
        }
      }
    } catch (error) {
      this.#endText = failureText(error);
    }
  }

  /** Records the device's events for the QP, which are more specific than a work completion. */
  async #watchDevice(): Promise<void> {
    try {
      for await (const event of this.#parts.context.asyncEvents()) {
        this.#debug(`asynchronous event: ${event.text}`);
        if (event.qpNum === this.#parts.qp.qpNum) this.#asyncText = event.text;
      }
    } catch (error) {
      this.#debug(`asynchronous events: ${failureText(error)}`);
    }
  }

  async #waitForEnd(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, END_TIMEOUT_MS);
    });
    await Promise.race([this.#ended, timeout]);
    clearTimeout(timer);
  }
}

function operationText(wc: WC): string {
  switch (wc.opcode) {
    case WCOpcode.rdmaRead:
      return 'the RDMA Read';
    case WCOpcode.rdmaWrite:
      return 'the RDMA Write';
    case WCOpcode.recv:
      return 'a receive';
    default:
      return 'a Send';
  }
}
