/**
 * A consumer of an emulated device inside the test: a queue pair with its queues, memory that peers
 * may reach, and its completions, as plain values.
 */
import type { WC } from '#contract/verbs/completion';
import { Access, MWType, WCFlag, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { SendFields } from '#contract/verbs/work-request';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { MW } from '#daemon/rnic/memory/memory-window';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import { CompletionRing } from '#verbs-api/client/completion-ring';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { SendRing } from '#verbs-api/client/send-ring';
import { bytesOf, hexOf } from './hex.ts';
import { until } from './patience.ts';
import { queueSizes } from './queue-sizes.ts';
import type { RnicNode } from './rnic-node.ts';

const QUEUE_DEPTH = 256;
const SGES = 4;
const INLINE_BYTES = 64;
const BUFFER_BYTES = 1 << 21;
/** Local address of the buffer's first byte. */
const BUFFER_ADDRESS = 0x10_0000;
/** Local address of the first region; each next one follows the last. */
const REGION_ADDRESS = 0x4000_0000;
const REGION_SPACING = 0x100_0000;

/** Every right that a region can give. */
const ALL_ACCESS =
  Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic | Access.mwBind;

export interface ConsumerOptions {
  readonly device?: string;
  /** Share these with another consumer. */
  readonly pd?: PD;
  readonly cq?: CQ;
  readonly srq?: SRQ;
  readonly cqe?: number;
}

/** Memory registered for peers. */
export interface Region {
  readonly bytes: Uint8Array;
  readonly mr: MR;
  /** In hexadecimal, as in a ULPDU. */
  readonly stag: string;
}

interface RegionOptions {
  readonly access?: number;
  /** Tagged Offset of its first byte. */
  readonly to?: number;
  /** Added to its local address, which is a multiple of 4,096. */
  readonly shift?: number;
  readonly pd?: PD;
  /** Registers this memory again. */
  readonly bytes?: Uint8Array;
}

/** A receive as the consumer saw it complete. */
interface Received {
  readonly status: WCStatus;
  readonly payload: string;
  readonly immediate?: string;
  readonly invalidated?: string;
}

/** `value` as 8 hexadecimal digits. */
export function hex32(value: number): string {
  return value.toString(16).padStart(8, '0');
}

/** `value` as 16 hexadecimal digits. */
export function hex64(value: number | bigint): string {
  return value.toString(16).padStart(16, '0');
}

export class Consumer {
  readonly node: RnicNode;
  readonly device: EmulatedDevice;
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
  /** Sends use the first half, receives the second. */
  readonly buffer = new Uint8Array(BUFFER_BYTES);
  readonly bufferMR: MR;
  /** Completions of sends that were taken while looking for others. */
  readonly sent: WC[] = [];
  readonly #send: SendRing;
  readonly #receive: ReceiveRing;
  readonly #completions: CompletionRing;
  readonly #receives: { readonly at: number; readonly length: number }[] = [];
  readonly #received: Received[] = [];
  #sendAt = 0;
  #receiveAt = BUFFER_BYTES / 2;
  #regions = 0;

  constructor(node: RnicNode, options: ConsumerOptions = {}) {
    this.node = node;
    this.device = node.device(options.device);
    const { nic } = this.device;
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    this.pd = options.pd ?? nic.allocPD();
    this.cq = options.cq ?? nic.createCQ({ cqe: options.cqe ?? 4 * QUEUE_DEPTH, ring, tag: this });
    this.bufferMR = nic.regMR(this.pd, {
      backing: new ViewBacking(this.buffer),
      backingOffset: 0,
      lengthBytes: BUFFER_BYTES,
      address: BUFFER_ADDRESS,
      iova: BUFFER_ADDRESS,
      access: Access.localWrite,
      key: undefined,
    });
    this.qp = nic.createQP(this.pd, {
      sendCQ: this.cq,
      recvCQ: this.cq,
      srq: options.srq,
      capabilities: queueSizes(QUEUE_DEPTH, QUEUE_DEPTH, SGES, INLINE_BYTES),
      sqSigAll: true,
      ring,
      tag: this,
    });
    const { qp } = this;
    const limits = { maxSge: SGES, maxInline: INLINE_BYTES, sqSigAll: true };
    this.#send = new SendRing(qp.ring, { count: qp.sqCount, ...limits });
    this.#receive =
      options.srq === undefined
        ? new ReceiveRing(qp.ring, qp.rqOffset, qp.rqCount, SGES)
        : new ReceiveRing(options.srq.ring, 0, options.srq.count, SGES);
    this.#completions = new CompletionRing(this.cq.ring, this.cq.count);
  }

  /** Registers memory for peers; by default with every right, from Tagged Offset 0x1000 on. */
  register(lengthBytes: number, options: RegionOptions = {}): Region {
    const bytes = options.bytes ?? new Uint8Array(lengthBytes);
    const address = REGION_ADDRESS + this.#regions * REGION_SPACING + (options.shift ?? 0);
    this.#regions += 1;
    const mr = this.device.nic.regMR(options.pd ?? this.pd, {
      backing: new ViewBacking(bytes),
      backingOffset: 0,
      lengthBytes: bytes.length,
      address,
      iova: options.to ?? 0x1000,
      access: options.access ?? ALL_ACCESS,
      key: undefined,
    });
    return { bytes, mr, stag: hex32(mr.rkey) };
  }

  /** Binds a new type 2 window onto the whole region: its STag is valid only on this stream. */
  async bindWindow(region: Region, access: number): Promise<{ mw: MW; stag: string }> {
    const mw = this.device.nic.allocMW(this.pd, MWType.type2);
    const rkey = ((mw.rkey & 0xffff_ff00) | ((mw.rkey + 1) & 0xff)) >>> 0;
    const { mr } = region;
    const range = { lkey: mr.lkey, addr: mr.address, length: mr.lengthBytes };
    this.post({ opcode: WROpcode.bindMW, bind: { rkey, access, ...range } });
    const [bound] = await this.sends(1);
    if (bound?.status !== WCStatus.success) throw new Error(`the bind ended with ${bound?.status}`);
    return { mw, stag: hex32(rkey) };
  }

  postReceive(lengthBytes: number, count = 1): void {
    for (let i = 0; i < count; i++) {
      const at = this.#receiveAt;
      this.#receiveAt += Math.max(lengthBytes, 1);
      if (this.#receiveAt > BUFFER_BYTES) throw new Error('no room for receives');
      const addr = BUFFER_ADDRESS + at;
      const sgList = [{ addr, length: lengthBytes, lkey: this.bufferMR.lkey }];
      const refused = this.#receive.post({ wrId: this.#receives.length, sgList });
      if (refused !== undefined) throw new Error(refused);
      this.#receives.push({ at, length: lengthBytes });
    }
  }

  /** Posts a request and rings the doorbell. */
  post(wr: SendFields): void {
    this.enqueue(wr);
    this.node.host.doorbell(this.qp);
  }

  /** Writes a request into the ring without telling the device. */
  enqueue(wr: SendFields): void {
    const refused = this.#send.post(wr);
    if (refused !== undefined) throw new Error(refused);
  }

  /** SGEs for `payload`, in hexadecimal, copied into the buffer. */
  payload(payload: string): SendFields['sgList'] {
    const bytes = bytesOf(payload);
    const at = this.#sendAt;
    this.#sendAt += bytes.length;
    if (this.#sendAt > BUFFER_BYTES / 2) throw new Error('no room for sends');
    this.buffer.set(bytes, at);
    return [{ addr: BUFFER_ADDRESS + at, length: bytes.length, lkey: this.bufferMR.lkey }];
  }

  send(payload: string, change: Partial<SendFields> = {}): void {
    this.post({ opcode: WROpcode.send, sgList: this.payload(payload) ?? [], ...change });
  }

  write(payload: string, rkey: number, remoteAddr: number | bigint): void {
    const sgList = this.payload(payload) ?? [];
    this.post({ opcode: WROpcode.rdmaWrite, sgList, rkey, remoteAddr });
  }

  /** Reads into `sink` from its Tagged Offset `at` on. */
  read(sink: Region, length: number, rkey: number, remoteAddr: number | bigint): void {
    const sgList = [{ addr: sink.mr.address, length, lkey: sink.mr.lkey }];
    this.post({ opcode: WROpcode.rdmaRead, sgList, rkey, remoteAddr });
  }

  fetchAdd(sink: Region, add: bigint, rkey: number, remoteAddr: number | bigint): void {
    const sgList = [{ addr: sink.mr.address, length: 8, lkey: sink.mr.lkey }];
    const opcode = WROpcode.atomicFetchAndAdd;
    this.post({ opcode, sgList, rkey, remoteAddr, compareAdd: add });
  }

  compareSwap(
    sink: Region,
    [compareAdd, swap]: readonly [bigint, bigint],
    rkey: number,
    remoteAddr: number | bigint,
  ): void {
    const sgList = [{ addr: sink.mr.address, length: 8, lkey: sink.mr.lkey }];
    this.post({ opcode: WROpcode.atomicCmpAndSwap, sgList, rkey, remoteAddr, compareAdd, swap });
  }

  /** Requests a notification of the next completion. */
  arm(solicitedOnly: boolean): void {
    this.#completions.arm(solicitedOnly);
  }

  /** Takes all available completions: of receives into `received`, others into `sent`. */
  poll(): void {
    for (let wc = this.#completions.take(); wc !== undefined; wc = this.#completions.take()) {
      const ofReceive = wc.opcode === WCOpcode.recv || wc.opcode === WCOpcode.recvImmediate;
      if (ofReceive) this.#received.push(this.#readReceive(wc));
      else this.sent.push(wc);
    }
  }

  /** Waits for `count` completions of any kind, which need not be from this consumer's receives. */
  async completions(count: number): Promise<WC[]> {
    const found: WC[] = [];
    await until(`${count} completions`, () => {
      const wc = this.#completions.take();
      if (wc !== undefined) found.push(wc);
      return found.length >= count;
    });
    return found;
  }

  /** Receives completed since the last call, at this moment. */
  receivedNow(): Received[] {
    this.poll();
    return this.#received.splice(0);
  }

  /** Waits for `count` completed receives. */
  async received(count: number): Promise<Received[]> {
    await until(`${count} receives`, () => {
      this.poll();
      return this.#received.length >= count;
    });
    return this.#received.splice(0, count);
  }

  /** Payloads of the next `count` receives. */
  async payloads(count: number): Promise<string[]> {
    return (await this.received(count)).map(({ payload }) => payload);
  }

  /** Waits for `count` completions of sends, reads and so on. */
  async sends(count: number): Promise<WC[]> {
    await until(`${count} send completions`, () => {
      this.poll();
      return this.sent.length >= count;
    });
    return this.sent.splice(0, count);
  }

  /** Statuses of the next `count` completions of sends. */
  async statuses(count: number): Promise<WCStatus[]> {
    return (await this.sends(count)).map(({ status }) => status);
  }

  #readReceive(wc: WC): Received {
    const receive = this.#receives[Number(wc.wrId)];
    if (receive === undefined) throw new Error(`receive ${wc.wrId} was never posted`);
    const bytes = this.buffer.subarray(receive.at, receive.at + wc.byteLen);
    const { status } = wc;
    return {
      status,
      payload: status === WCStatus.success ? hexOf(bytes) : '',
      ...((wc.wcFlags & WCFlag.withImm) !== 0 && { immediate: hex64(wc.immData) }),
      ...((wc.wcFlags & WCFlag.withInv) !== 0 && { invalidated: hex32(wc.invalidatedRkey) }),
    };
  }
}
