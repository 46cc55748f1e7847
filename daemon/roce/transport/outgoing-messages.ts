/** Unacknowledged messages of a requester, oldest first. A ring of reused entries. */
import { OutboundKind, type OutboundMessage } from '#daemon/rnic/wire-port';
import { addPsn } from '../wire/psn.ts';

/** A message, and the PSNs of its packets (for a Read: of its response). */
export class OutgoingMessage {
  slot = 0;
  kind: OutboundKind = OutboundKind.none;
  lengthBytes = 0;
  firstPsn = 0;
  packets = 0;
  solicited = false;
  remoteStag = 0;
  remoteToHi = 0;
  remoteToLo = 0;
  invalidateStag = 0;
  immediate = 0;
  atomicOperation = 0;
  operandHi = 0;
  operandLo = 0;
  compareHi = 0;
  compareLo = 0;

  get lastPsn(): number {
    return addPsn(this.firstPsn, this.packets - 1);
  }

  /** True for a Read or atomic: only the response completes it. */
  get awaitsResponse(): boolean {
    return this.kind === OutboundKind.readRequest || this.kind === OutboundKind.atomic;
  }

  /** Copies the fields that its packets need. */
  describe(message: OutboundMessage, firstPsn: number, mtu: number): void {
    const { kind, lengthBytes } = message;
    this.slot = message.slot;
    this.kind = kind;
    this.lengthBytes = kind === OutboundKind.atomic ? 0 : lengthBytes;
    this.firstPsn = firstPsn;
    this.packets = packetsOf(this.lengthBytes, mtu);
    this.solicited = message.solicited;
    this.remoteStag = message.remoteStag;
    this.remoteToHi = message.remoteToHi;
    this.remoteToLo = message.remoteToLo;
    this.invalidateStag = message.invalidateStag;
    this.immediate = message.immediateLo;
    this.atomicOperation = message.atomicOperation;
    this.operandHi = message.atomicOperandHi;
    this.operandLo = message.atomicOperandLo;
    this.compareHi = message.atomicCompareHi;
    this.compareLo = message.atomicCompareLo;
  }
}

/** Number of packets of a message: at least one. */
export function packetsOf(lengthBytes: number, mtu: number): number {
  return lengthBytes === 0 ? 1 : Math.ceil(lengthBytes / mtu);
}

export class OutgoingMessages {
  count = 0;
  readonly #capacity: number;
  readonly #entries: OutgoingMessage[] = [];
  #first = 0;

  /** `capacity` is a power of two. Allocates entries on first use. */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get full(): boolean {
    return this.count >= this.#capacity;
  }

  /** The entry `index` places after the oldest. */
  at(index: number): OutgoingMessage {
    return this.#entry((this.#first + index) & (this.#capacity - 1));
  }

  /** Appends an entry for the caller to fill in. The ring must not be full. */
  push(): OutgoingMessage {
    this.count += 1;
    return this.at(this.count - 1);
  }

  shift(): void {
    this.#first = (this.#first + 1) & (this.#capacity - 1);
    this.count -= 1;
  }

  clear(): void {
    this.count = 0;
  }

  #entry(at: number): OutgoingMessage {
    let entry = this.#entries[at];
    if (entry === undefined) {
      // Entries are used in order, so the list has no gaps except after a `clear`.
      while (this.#entries.length <= at) this.#entries.push(new OutgoingMessage());
      entry = this.#entries[at] as OutgoingMessage;
    }
    return entry;
  }
}
