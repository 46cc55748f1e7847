/**
 * A queue pair with the buffers of RPC over RDMA: receives of one size, Sends assembled in
 * registered memory, RDMA Reads and Writes in the order requested. It does not interpret messages.
 */
import { setImmediate } from 'node:timers/promises';
import {
  Access,
  CMEventType,
  QPState,
  SendFlag,
  WC_STATUS_TEXT,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { ConnectionId, Context, CQ, MR, PD, QP } from '#contract/verbs/provider';
import type { RecvWR, SendWR, SGE } from '#contract/verbs/work-request';
import { textOf } from './rpc-error.ts';

interface ChannelSizes {
  readonly receives: number;
  /** Bytes of a receive, and the maximum of a Send. */
  readonly inlineBytes: number;
  /** Maximum Sends on the queue; more wait. Default: the queue's depth. */
  readonly sends?: number;
  /** Maximum requests of all kinds on the send queue; more wait. */
  readonly sendDepth: number;
}

interface ChannelOwner {
  /** A message; the view is valid until `repost(receive)`. */
  handleMessage(bytes: Uint8Array, receive: number): void;
  /** A batch of completions was handled: time to act and to `flush`. */
  handleBatch(): void;
  /** The connection ended; called once, and not after `close`. */
  handleEnd(text: string): void;
}

interface RemoteMemory {
  readonly handle: number;
  readonly offset: bigint;
}

/** Memory opened to the peer through a window. */
export interface WindowTarget {
  readonly mr: MR;
  /** Offset in `mr`, in bytes. */
  readonly start: number;
  readonly lengthBytes: number;
  /** Access rights of the peer. */
  readonly access: number;
}

/** Called when an operation and all before it are complete; undefined without a callback. */
type Done = (() => void) | undefined;

/** An operation for the send queue. That of a slot is used again for the next Send from there. */
interface Operation {
  readonly wr: SendWR & { flags: number };
  /** Where a Send is assembled, and which part of it is sent; undefined for other operations. */
  readonly slot:
    | { readonly memory: Uint8Array; readonly sge: SGE & { length: number } }
    | undefined;
  done: Done;
  /** Generates a completion; an unsignalled one is complete when a later one is. */
  signalled: boolean;
}

interface SendOptions {
  readonly done?: () => void;
  /** The receive that it answers. */
  readonly receive?: number;
}

const NO_OPTIONS: SendOptions = {};

/** A Send without a slot yet: its bytes, in a private copy. */
interface WaitingSend {
  readonly message: Uint8Array;
  readonly options: SendOptions;
}

/** Timeout of a graceful disconnect. */
const GRACE_MS = 2000;
/**
 * Send work requests that are posted without waiting for the rest of a burst, so that client, devices and server
 * work on parts of it at the same time instead of one after the other. With 4, NULL calls, 16 at once, are 3 to 7 %
 * faster than with whole bursts; with 2, 4 %; with 8, not (two cores).
 */
const SENDS_PER_POST = 4;
/** Maximum completions polled at once. */
const BATCH = { max: 64 } as const;
/** Consecutive batches before yielding to other work of the process. */
const BATCHES_PER_TURN = 8;

export class RdmaChannel {
  readonly id: ConnectionId;
  readonly context: Context;
  readonly pd: PD;
  readonly #sizes: ChannelSizes;
  readonly #cq: CQ;
  readonly #qp: QP;
  readonly #receiveMemory: MR;
  readonly #sendMemory: MR;
  /** The request of each receive: always the same. */
  readonly #receiveRequests: RecvWR[] = [];
  /** Sends that can be used again; there may be `#unusedSlots` more. */
  readonly #freeSends: Operation[] = [];
  #unusedSlots: number;
  /** Operations on the queue, in the order of their completions. */
  readonly #posted: Operation[] = [];
  /** Operations enqueued since the last signalled one. */
  #unsignalled = 0;
  /** One of them has a `done`: the last one of a flush is signalled. */
  #unsignalledDone = false;
  readonly #waiting: (Operation | WaitingSend)[] = [];
  #receives: RecvWR[] = [];
  #sends: SendWR[] = [];
  #owner: ChannelOwner | undefined;
  readonly #abandon = new Set<(error: Error) => void>();
  #over = false;
  #closing: Promise<void> | undefined;

  private constructor(
    id: ConnectionId,
    sizes: ChannelSizes,
    parts: {
      readonly context: Context;
      readonly pd: PD;
      readonly cq: CQ;
      readonly qp: QP;
      readonly receiveMemory: MR;
      readonly sendMemory: MR;
    },
  ) {
    this.id = id;
    this.context = parts.context;
    this.pd = parts.pd;
    this.#sizes = sizes;
    this.#cq = parts.cq;
    this.#qp = parts.qp;
    this.#receiveMemory = parts.receiveMemory;
    this.#sendMemory = parts.sendMemory;
    this.#unusedSlots = sendsOf(sizes);
    const { inlineBytes } = sizes;
    for (let receive = 0; receive < sizes.receives; receive++) {
      const sge = this.#receiveMemory.sge(receive * inlineBytes, inlineBytes);
      this.#receiveRequests.push({ wrId: receive, sgList: [sge] });
      this.repost(receive);
    }
    this.flush();
  }

  /**
   * Creates queue pair and buffers for an id bound to a device, and posts the receives. Owns the id
   * from then on, even if it rejects.
   */
  static async create(id: ConnectionId, sizes: ChannelSizes): Promise<RdmaChannel> {
    let context: Context | undefined;
    try {
      context = await id.provider.open(id.device);
      const pd = await context.allocPD();
      const cq = await context.createCQ({ cqe: sizes.sendDepth + sizes.receives });
      const qp = await id.createQP(pd, {
        sendCQ: cq,
        recvCQ: cq,
        maxSendWr: sizes.sendDepth,
        maxRecvWr: sizes.receives,
      });
      const allocate = (count: number): Promise<MR> =>
        pd.allocMR(count * sizes.inlineBytes, Access.localWrite);
      const receiveMemory = await allocate(sizes.receives);
      const sendMemory = await allocate(sendsOf(sizes));
      return new RdmaChannel(id, sizes, { context, pd, cq, qp, receiveMemory, sendMemory });
    } catch (error) {
      await id.close();
      await context?.close();
      throw error;
    }
  }

  /** Starts delivering messages, once the connection is established. */
  start(owner: ChannelOwner): void {
    this.#owner = owner;
    void this.#complete();
    void this.#watch();
  }

  /** Reposts a receive, with the next `flush`. */
  repost(receive: number): void {
    const request = this.#receiveRequests[receive];
    if (request === undefined) throw new RangeError(`no such receive ${receive}`);
    this.#receives.push(request);
  }

  /** True if a Send can be posted without waiting. */
  get sendsAtOnce(): boolean {
    return this.#room && (this.#freeSends.length > 0 || this.#unusedSlots > 0);
  }

  /**
   * Sends a message of `lengthBytes`, at most the channel's `inlineBytes`, which `assemble` writes
   * immediately to the start of its argument; posted with the next `flush`. A completion wakes this
   * process and the device, so all Sends of a flush share one, and those without a `done` generate none.
   *
   * The receive that it answers is reposted once the message has a slot. So a peer that takes no answers has at
   * most as many waiting as the channel has receives.
   */
  send(lengthBytes: number, assemble: (target: Uint8Array) => void, options = NO_OPTIONS): void {
    const send = this.#room ? this.#takeSend() : undefined;
    if (send?.slot === undefined) {
      const message = new Uint8Array(lengthBytes);
      assemble(message);
      this.#waiting.push({ message, options });
      return;
    }
    assemble(send.slot.memory);
    send.slot.sge.length = lengthBytes;
    this.#enqueueSend(send, options);
  }

  read(from: RemoteMemory, sink: SGE, done: () => void): void {
    this.#operate(remoteRequest(WROpcode.rdmaRead, from, sink), done);
  }

  write(to: RemoteMemory, source: SGE, done?: () => void): void {
    this.#operate(remoteRequest(WROpcode.rdmaWrite, to, source), done);
  }

  /** Opens memory to the peer under `rkey`, ahead of everything sent later. */
  bind(rkey: number, { mr, start, lengthBytes, access }: WindowTarget): void {
    const { addr, length, lkey } = mr.sge(start, lengthBytes);
    const bound = { rkey, lkey, addr, length, access };
    this.#operate({ opcode: WROpcode.bindMW, flags: 0, bind: bound }, undefined);
  }

  /** Ends the peer's access to the memory bound under `rkey`. */
  invalidate(rkey: number, done: () => void): void {
    this.#operate({ opcode: WROpcode.localInv, flags: 0, invalidateRkey: rkey }, done);
  }

  /**
   * Settles like `work`, which waits for operations to complete; rejects if the connection ends
   * first, since they then never complete.
   */
  async whileOpen<T>(work: Promise<T>): Promise<T> {
    let abandon = (_error: Error): void => undefined;
    const over = new Promise<never>((_resolve, reject) => {
      abandon = reject;
    });
    this.#abandon.add(abandon);
    if (this.#over) abandon(new VerbsError('ENOTCONN'));
    try {
      return await Promise.race([work, over]);
    } finally {
      this.#abandon.delete(abandon);
    }
  }

  /** Posts everything requested if that is enough for a post. Call it while a burst is being made. */
  flushPart(): void {
    if (this.#sends.length >= SENDS_PER_POST) this.flush();
  }

  /** Posts everything requested: receives first, since a Send may bring the next message. */
  flush(): void {
    if (this.#closing !== undefined) return;
    try {
      if (this.#receives.length > 0) {
        const receives = this.#receives;
        this.#receives = [];
        this.#qp.postRecv(receives);
      }
      if (this.#sends.length > 0) {
        const last = this.#posted.at(-1);
        if (this.#unsignalledDone && last !== undefined) this.#signal(last);
        const sends = this.#sends;
        this.#sends = [];
        this.#qp.postSend(sends);
      }
    } catch (error) {
      this.#end(textOf(error));
    }
  }

  /** Resets the connection as if it had ended on its own: the owner is notified and must close. */
  fail(text: string): void {
    this.#end(text);
    void this.abort();
  }

  /** Resets the connection; the caller must still `close`. */
  async abort(): Promise<void> {
    this.#giveUp();
    try {
      await this.#qp.modify({ state: QPState.ERR });
    } catch {
      // The connection has already ended.
    }
  }

  /**
   * Disconnects and frees everything, including registrations in `pd`. Resets the connection after
   * a timeout if the peer does not receive what was sent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#giveUp();
    const timer = setTimeout(() => void this.abort(), GRACE_MS);
    try {
      await this.id.close();
    } finally {
      clearTimeout(timer);
    }
    await this.context.close();
  }

  /** True if an operation can be posted without waiting. */
  get #room(): boolean {
    return this.#waiting.length === 0 && this.#depthLeft > 0;
  }

  get #depthLeft(): number {
    return this.#sizes.sendDepth - this.#posted.length;
  }

  /** A Send with a slot; undefined while all are on the queue. */
  #takeSend(): Operation | undefined {
    const free = this.#freeSends.pop();
    if (free !== undefined || this.#unusedSlots === 0) return free;
    this.#unusedSlots -= 1;
    const { inlineBytes } = this.#sizes;
    const start = this.#unusedSlots * inlineBytes;
    const sge = { ...this.#sendMemory.sge(start, inlineBytes) };
    const memory = this.#sendMemory.buffer.subarray(start, start + inlineBytes);
    const wr = { opcode: WROpcode.send, flags: 0, sgList: [sge] };
    return { wr, slot: { memory, sge }, done: undefined, signalled: false };
  }

  #operate(wr: Operation['wr'], done: Done): void {
    const operation: Operation = { wr, slot: undefined, done, signalled: false };
    if (this.#room) this.#enqueue(operation);
    else this.#waiting.push(operation);
  }

  #enqueueSend(send: Operation, { done, receive }: SendOptions): void {
    send.done = done;
    this.#enqueue(send);
    if (receive !== undefined) this.repost(receive);
  }

  #enqueue(operation: Operation): void {
    const { done, slot } = operation;
    operation.signalled = false;
    operation.wr.flags = 0;
    this.#unsignalled += 1;
    if (done !== undefined) this.#unsignalledDone = true;
    // What only moves memory may take long, so it does not wait for others. And enough completions that
    // slots do not run out while no operation requests one.
    const alone = slot === undefined && done !== undefined;
    if (alone || this.#unsignalled * 2 >= sendsOf(this.#sizes)) this.#signal(operation);
    this.#posted.push(operation);
    this.#sends.push(operation.wr);
  }

  /** Requests a completion of an operation that has not been posted; it reports all before it, too. */
  #signal(operation: Operation): void {
    operation.signalled = true;
    operation.wr.flags = SendFlag.signaled;
    this.#unsignalled = 0;
    this.#unsignalledDone = false;
  }

  /** Moves waiting operations onto the queue. */
  #advance(): void {
    while (this.#waiting.length > 0 && this.#depthLeft > 0) {
      const next = this.#waiting[0];
      if (next === undefined) return;
      if (!('message' in next)) {
        this.#waiting.shift();
        this.#enqueue(next);
        continue;
      }
      const send = this.#takeSend();
      if (send?.slot === undefined) return;
      this.#waiting.shift();
      send.slot.memory.set(next.message);
      send.slot.sge.length = next.message.length;
      this.#enqueueSend(send, next.options);
    }
  }

  /** Polls completions until the connection ends. */
  async #complete(): Promise<void> {
    try {
      for (let batches = 1; this.#owner !== undefined; batches++) {
        for (const wc of await this.#cq.wait(BATCH)) {
          if (this.#owner === undefined) return;
          if (wc.status !== WCStatus.success) {
            // The connection event is more specific than a flushed request.
            if (wc.status === WCStatus.wrFlushErr) return;
            this.#end(wc.reason ?? WC_STATUS_TEXT[wc.status]);
            return;
          }
          if (wc.opcode === WCOpcode.recv) this.#handleReceive(Number(wc.wrId), wc.byteLen);
          else this.#handleDone();
        }
        this.#advance();
        this.#owner?.handleBatch();
        this.flush();
        if (batches % BATCHES_PER_TURN === 0) await setImmediate();
      }
    } catch (error) {
      this.#end(textOf(error));
    }
  }

  #handleReceive(receive: number, lengthBytes: number): void {
    const start = receive * this.#sizes.inlineBytes;
    const bytes = this.#receiveMemory.buffer.subarray(start, start + lengthBytes);
    this.#owner?.handleMessage(bytes, receive);
  }

  /** A completion arrived: completes everything up to the next signalled operation. */
  #handleDone(): void {
    for (;;) {
      const operation = this.#posted.shift();
      if (operation === undefined) return;
      const { done, signalled } = operation;
      if (operation.slot !== undefined) {
        operation.done = undefined;
        this.#freeSends.push(operation);
      }
      done?.();
      if (signalled) return;
    }
  }

  /** Waits for the end of the connection. */
  async #watch(): Promise<void> {
    try {
      for await (const event of this.id.events()) {
        if (event.type === CMEventType.disconnected) {
          this.#end(event.text);
          return;
        }
      }
    } catch (error) {
      this.#end(textOf(error));
    }
  }

  #end(text: string): void {
    const owner = this.#owner;
    this.#owner = undefined;
    this.#giveUp();
    if (this.#closing === undefined) owner?.handleEnd(text);
  }

  #giveUp(): void {
    this.#over = true;
    for (const abandon of this.#abandon) abandon(new VerbsError('ENOTCONN'));
  }
}

function sendsOf(sizes: ChannelSizes): number {
  return sizes.sends ?? sizes.sendDepth;
}

function remoteRequest(
  opcode: typeof WROpcode.rdmaRead | typeof WROpcode.rdmaWrite,
  remote: RemoteMemory,
  local: SGE,
): Operation['wr'] {
  return { opcode, flags: 0, sgList: [local], remoteAddr: remote.offset, rkey: remote.handle };
}
