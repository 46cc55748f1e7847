/** A client of rings with indices, like rdma-core's provider for rxe. It reads a ring's header. */
import { CompletionElement, ReceiveElement, SendElement } from '#daemon/rnic/rings/indexed-layout';

/** A piece of memory as an SGE names it. */
interface Piece {
  readonly addr: number;
  readonly length: number;
  readonly lkey: number;
}

/** The client's end of one ring. */
export class IndexRingClient {
  readonly bytes: Uint8Array;
  readonly view: DataView;

  constructor(bytes: Uint8Array, start = 0) {
    this.bytes = bytes.subarray(start);
    this.view = new DataView(bytes.buffer, bytes.byteOffset + start);
  }

  get slotBytes(): number {
    return 2 ** this.view.getUint32(0, true);
  }
  get mask(): number {
    return this.view.getUint32(4, true);
  }
  get producer(): number {
    return this.view.getUint32(128, true);
  }
  set producer(value: number) {
    this.view.setUint32(128, value, true);
  }
  get consumer(): number {
    return this.view.getUint32(256, true);
  }
  set consumer(value: number) {
    this.view.setUint32(256, value, true);
  }
  /** The index up to which the device has shown entries, or has completed receives. */
  get shown(): number {
    return this.view.getUint32(132, true);
  }
  /** Requests one notification: 1 for a solicited completion, 2 for any, as the preload library does. */
  arm(bits: number): void {
    Atomics.or(new Int32Array(this.bytes.buffer, this.bytes.byteOffset + 264, 1), 0, bits);
  }
  get full(): boolean {
    return ((this.producer + 1) & this.mask) === this.consumer;
  }

  slot(index: number): number {
    return 384 + (index & this.mask) * this.slotBytes;
  }

  receive(wrId: number, pieces: readonly Piece[], numSge = pieces.length): void {
    const position = this.#claim();
    this.view.setBigUint64(position + ReceiveElement.wrId, BigInt(wrId), true);
    this.view.setUint32(position + ReceiveElement.numSge, numSge, true);
    this.#put(position + ReceiveElement.sge, pieces);
    this.#publish();
  }

  /** Posts a send; `fields` are u32 by position, after the SGEs and the common fields. */
  send(
    wrId: number,
    opcode: number,
    flags: number,
    pieces: readonly Piece[],
    fields: Readonly<Record<number, number>> = {},
  ): void {
    const position = this.#claim();
    // The provider leaves other bytes of the slot as they were.
    this.bytes.fill(0xa5, position + 144, position + 184);
    this.bytes.fill(0, position, position + 144);
    this.view.setBigUint64(position + SendElement.wrId, BigInt(wrId), true);
    this.view.setUint32(position + SendElement.opcode, opcode, true);
    this.view.setUint32(position + SendElement.flags, flags, true);
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    this.view.setUint32(position + SendElement.length, length, true);
    this.view.setUint32(position + SendElement.numSge, pieces.length, true);
    this.#put(position + SendElement.sge, pieces);
    for (const [at, value] of Object.entries(fields)) {
      this.view.setUint32(position + Number(at), value, true);
    }
    this.#publish();
  }

  /** Takes the oldest completion. */
  poll() {
    if (this.producer === this.consumer) return undefined;
    const position = this.slot(this.consumer);
    const { view } = this;
    const at = CompletionElement;
    const word = (offset: number): number => view.getUint32(position + offset, true);
    const completion = {
      wrId: Number(view.getBigUint64(position + at.wrId, true)),
      status: word(at.status),
      opcode: word(at.opcode),
      vendorError: word(at.vendorError),
      byteLen: word(at.byteLen),
      /** As the bytes are: little endian. */
      immediate: word(at.immediate),
      qpn: word(at.qpn),
      sourceQpn: word(at.sourceQpn),
      flags: word(at.flags),
      sl: view.getUint8(position + at.sl),
      port: view.getUint8(position + at.port),
    };
    this.consumer = (this.consumer + 1) & this.mask;
    return completion;
  }

  /** Takes all completions; their work request ids and statuses. */
  outcome(): [number, number][] {
    const outcome: [number, number][] = [];
    for (let wc = this.poll(); wc !== undefined; wc = this.poll())
      outcome.push([wc.wrId, wc.status]);
    return outcome;
  }

  #claim(): number {
    if (this.full) throw new Error('the ring is full');
    return this.slot(this.producer);
  }

  #put(position: number, pieces: readonly Piece[]): void {
    pieces.forEach((piece, index) => {
      const at = position + index * 16;
      this.view.setBigUint64(at, BigInt(piece.addr), true);
      this.view.setUint32(at + 8, piece.length, true);
      this.view.setUint32(at + 12, piece.lkey, true);
    });
  }

  #publish(): void {
    this.producer = (this.producer + 1) & this.mask;
  }
}
