/** The queue pair. */
import type { QPAttributes, QPCapabilities } from '../../verbs-api/contract/attributes.ts';
import { QPState } from '../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type {
  AtomicAccess,
  InboundMessage,
  OutboundMessage,
  StreamUser,
} from '../engine/placement.ts';
import { Fault } from '../engine/placement.ts';
import type { Micros, StreamFailure, StreamPort } from '../engine/stream-api.ts';
import type { CQ } from './completion-queue.ts';
import type { EffectQueue } from './effect.ts';
import type { MW } from './memory-window.ts';
import type { NicCounters } from './nic-counters.ts';
import type { PD } from './protection-domain.ts';
import type { SRQ } from './shared-receive-queue.ts';
import type { StagTable } from './stag-table.ts';

/** Options of a queue pair. */
export interface QPInit {
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly capabilities: QPCapabilities;
  /** Every work request completes, flagged or not. */
  readonly sqSigAll: boolean;
  /** Supplies the memory of SQ and RQ: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  readonly tag: unknown;
}

/** Where the queues are in the ring memory. */
export interface QPLayout {
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly rqOffset: number;
  /** 0 with a shared receive queue. */
  readonly rqCount: number;
}

/** What a queue pair needs of its device. */
export interface QPHost {
  readonly stags: StagTable;
  readonly windows: Map<number, MW>;
  readonly effects: EffectQueue;
  readonly counters: NicCounters;
  /** QPs that have to call their stream once nobody is inside it. */
  readonly unsettled: Set<QP>;
  /** QPs that wait for memory to be fetched or written. */
  readonly waiting: Set<QP>;
  /** The latest time that the device was told. */
  now: Micros;
}

/** A reliable-connected queue pair. */
export class QP implements StreamUser {
  readonly qpn: number;
  readonly pd: PD;
  state: QPState = QPState.RESET;
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly rqOffset: number;
  readonly rqCount: number;
  readonly capabilities: QPCapabilities;
  tag: unknown;
  stream: StreamPort | undefined;

  constructor(
    qpn: number,
    pd: PD,
    init: QPInit,
    layout: QPLayout,
    _host: QPHost,
    _onClose: () => void,
  ) {
    this.qpn = qpn;
    this.pd = pd;
    this.ring = layout.ring;
    this.sqCount = layout.sqCount;
    this.rqOffset = layout.rqOffset;
    this.rqCount = layout.rqCount;
    this.capabilities = init.capabilities;
    this.tag = init.tag;
  }
  doorbell(_now: Micros): void {}
  modify(_state: QPState, _now: Micros): void {}
  query(): QPAttributes {
    throw new VerbsError('ENOSYS');
  }
  attach(_stream: StreamPort): void {}
  established(_depths: { ird: number; ord: number }, _now: Micros): void {}
  streamEnded(_failure: StreamFailure | undefined, _now: Micros): void {}
  terminated(_by: 'us' | 'peer', _failure: StreamFailure, _now: Micros): void {}
  close(_now: Micros): void {}
  settle(_now: Micros): void {}
  memoryReady(): void {}
  flushPosted(_now: Micros): boolean {
    return false;
  }
  placeWrite(): Fault {
    return Fault.stagInvalid;
  }
  placeReadResponse(): Fault {
    return Fault.stagInvalid;
  }
  readCompleted(): void {}
  atomicCompleted(_originalHi: number, _originalLo: number): void {}
  beginReceive(): Fault {
    return Fault.noBuffer;
  }
  placeReceive(): Fault {
    return Fault.noBuffer;
  }
  completeReceive(_message: InboundMessage): Fault {
    return Fault.noBuffer;
  }
  checkReadSource(): Fault {
    return Fault.stagInvalid;
  }
  prepareReadSource(): boolean {
    return true;
  }
  gatherReadSource(): Fault {
    return Fault.stagInvalid;
  }
  executeAtomic(_access: AtomicAccess): Fault {
    return Fault.stagInvalid;
  }
  nextMessage(_message: OutboundMessage): boolean {
    return false;
  }
  prepareGather(): boolean {
    return true;
  }
  gather(): Fault {
    return Fault.none;
  }
  messageSent(): void {}
}
