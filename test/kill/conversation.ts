/**
 * Two ends that keep sending to each other. A message is an RDMA Write of a payload into the other
 * end's memory, followed by a Send that says which payload must be in place.
 */
import { WROpcode } from '#contract/verbs/enums';
import type { MR } from '#contract/verbs/provider';
import type { SendWR } from '#contract/verbs/work-request';
import type { Connection, ConnectionParts } from '#verbs-api/connection';
import type { Ledger } from './ledger.ts';

/**
 * Maximum number of unacknowledged messages. Their payloads exceed what a device sends in a turn
 * plus what a socket holds, so some always wait inside a daemon.
 */
const WINDOW = 48;
/** Receives: for a window of messages, their acknowledgements and the farewell. */
const RECEIVES = 4 * WINDOW;
const PAYLOAD_BYTES = 128 * 1024;
const HEADER_BYTES = 16;
/** Maximum outstanding send requests: two for each message. */
const SENDS_MAX = 4 * WINDOW;

const INBOUND = 0;
const OUTBOUND = WINDOW * PAYLOAD_BYTES;
const RECEIVED = 2 * OUTBOUND;
const HEADERS = RECEIVED + RECEIVES * HEADER_BYTES;

/** Depths of the queue pair. */
export const DEPTHS = { maxSendWr: SENDS_MAX, maxRecvWr: RECEIVES };

/** Layout of one end's memory. */
export const MEMORY_BYTES = HEADERS + SENDS_MAX * HEADER_BYTES;

const Kind = { data: 1, acknowledgement: 2, farewell: 3 } as const;

/** Set in the id of a Send, clear in that of a Write. */
const IS_SEND = 1n;
/** Set in the id of a receive; its number follows. */
const IS_RECEIVE = 2n;

/** One end. */
export class Conversation {
  readonly #mr: MR;
  readonly #memory: DataView;
  readonly #ledger: Ledger;
  #remote = { address: 0n, rkey: 0 };
  #parts: ConnectionParts | undefined;
  /** Data messages: sent, acknowledged by the other end, received, acknowledged by this one. */
  #next = 0;
  #acknowledged = 0;
  #received = 0;
  #announced = 0;
  /** Incomplete send requests, and Sends posted in total. */
  #outstanding = 0;
  #posted = 0;
  #ending = false;
  #saidFarewell = false;
  #receivedFarewell = false;
  /** Called when the first message arrives: both ends are now sending. */
  onRunning: () => void = () => undefined;

  constructor(mr: MR, ledger: Ledger) {
    this.#mr = mr;
    this.#memory = new DataView(mr.buffer.buffer, mr.buffer.byteOffset, mr.buffer.byteLength);
    this.#ledger = ledger;
  }

  /** Posts the receives; the other end may send only after that. */
  prepare(parts: ConnectionParts): void {
    this.#parts = parts;
    for (let index = 0; index < RECEIVES; index++) this.#postReceive(index);
  }

  /** Stops sending. The conversation ends once the other end has stopped too. */
  end(): void {
    this.#ending = true;
    this.#pump();
  }

  /** Sends to the memory at `remote`. Returns true after both ends stopped, false after an error. */
  async run(
    { cq }: Connection,
    remote: { readonly address: bigint; readonly rkey: number },
  ): Promise<boolean> {
    this.#remote = { address: remote.address, rkey: remote.rkey };
    this.#pump();
    while (!this.#isOver()) {
      for (const { wrId, status } of await cq.wait()) {
        // After a farewell only receives are flushed.
        if (status !== 0) return this.#isOver();
        if ((wrId & IS_RECEIVE) !== 0n) this.#take(Number(wrId >> 2n));
        else this.#complete((wrId & IS_SEND) !== 0n);
      }
      this.#ledger.write();
      this.#pump();
    }
    return true;
  }

  #isOver(): boolean {
    return this.#saidFarewell && this.#receivedFarewell && this.#outstanding === 0;
  }

  #complete(isSend: boolean): void {
    this.#outstanding -= 1;
    if (isSend) this.#ledger.sent += 1;
  }

  #take(index: number): void {
    const at = RECEIVED + index * HEADER_BYTES;
    const kind = this.#memory.getUint32(at, true);
    const serial = this.#memory.getUint32(at + 4, true);
    this.#acknowledged = this.#memory.getUint32(at + 8, true);
    if (this.#memory.getUint32(at + 12, true) !== this.#ledger.received) {
      throw new Error(`message ${this.#ledger.received} is missing or duplicated`);
    }
    if (kind === Kind.data) this.#check(serial);
    if (kind === Kind.farewell) {
      this.#receivedFarewell = true;
      this.#ending = true;
    }
    this.#ledger.received += 1;
    this.#postReceive(index);
    if (this.#acknowledged > 0) this.onRunning();
  }

  /** Checks that the payload was placed before its Send arrived. */
  #check(serial: number): void {
    const slot = INBOUND + (serial % WINDOW) * PAYLOAD_BYTES;
    for (const at of [slot, slot + PAYLOAD_BYTES / 2, slot + PAYLOAD_BYTES - 4]) {
      const found = this.#memory.getUint32(at, true);
      if (found !== serial) throw new Error(`expected payload ${serial}, found ${found}`);
    }
    this.#received += 1;
  }

  #postReceive(index: number): void {
    const sgList = [this.#mr.sge(RECEIVED + index * HEADER_BYTES, HEADER_BYTES)];
    this.#parts?.qp.postRecv({ wrId: (BigInt(index) << 2n) | IS_RECEIVE, sgList });
  }

  #pump(): void {
    if (this.#remote.address === 0n || this.#saidFarewell) return;
    while (!this.#ending && this.#next - this.#acknowledged < WINDOW && this.#hasRoom()) {
      this.#sendData();
    }
    if (this.#received - this.#announced >= WINDOW / 2 && this.#hasRoom()) {
      this.#post([this.#header(Kind.acknowledgement, 0)]);
    }
    if (this.#ending && this.#outstanding === 0) {
      this.#saidFarewell = true;
      this.#post([this.#header(Kind.farewell, 0)]);
    }
  }

  #hasRoom(): boolean {
    return this.#outstanding + 2 <= SENDS_MAX;
  }

  #sendData(): void {
    const serial = this.#next++;
    const offset = (serial % WINDOW) * PAYLOAD_BYTES;
    const slot = OUTBOUND + offset;
    for (const at of [slot, slot + PAYLOAD_BYTES / 2, slot + PAYLOAD_BYTES - 4]) {
      this.#memory.setUint32(at, serial, true);
    }
    const write: SendWR = {
      opcode: WROpcode.rdmaWrite,
      sgList: [this.#mr.sge(slot, PAYLOAD_BYTES)],
      remoteAddr: this.#remote.address + BigInt(INBOUND + offset),
      rkey: this.#remote.rkey,
    };
    this.#post([write, this.#header(Kind.data, serial)]);
  }

  #header(kind: number, serial: number): SendWR {
    const at = HEADERS + (this.#posted % SENDS_MAX) * HEADER_BYTES;
    this.#memory.setUint32(at, kind, true);
    this.#memory.setUint32(at + 4, serial, true);
    this.#memory.setUint32(at + 8, this.#received, true);
    this.#memory.setUint32(at + 12, this.#posted, true);
    this.#posted += 1;
    this.#announced = this.#received;
    return { wrId: IS_SEND, opcode: WROpcode.send, sgList: [this.#mr.sge(at, HEADER_BYTES)] };
  }

  #post(requests: readonly SendWR[]): void {
    this.#outstanding += requests.length;
    this.#parts?.qp.postSend(requests);
  }
}
