/** The objects of one open uverbs device. Those with events are the tags of their NIC objects. */

import type { ProcessAllocation } from '#daemon/clients/objects/client-memory';
import { EventSink } from '#daemon/clients/objects/event-router';
import { eventReport, failureReport } from '#daemon/clients/objects/failure-report';
import { userOf } from '#daemon/clients/trusted-user';
import type { HostAsyncEvent } from '#daemon/host/nic-effects';
import type { DeviceFailure } from '#daemon/host/served-device';
import type { AH } from '#daemon/rnic/address-handle';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { MW } from '#daemon/rnic/memory/memory-window';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import type { EventQueue } from '../event-queue.ts';
import type { KernelClient } from '../kernel-client.ts';
import type { Ring } from '../ring-mapping.ts';
import type { WatchedSends } from './send-watch.ts';
import type { SendWords } from './send-words.ts';

/**
 * Unread records of one object in a queue. A program that reads its events has a few; one that arms
 * its queues and never reads would otherwise fill the daemon's memory.
 */
const UNREAD_MAX = 1024;
/**
 * Unread records of all objects of one program, beyond which each object may have only a few: a
 * queue with an unread record will be polled anyway, and other events may each be different.
 */
const CLIENT_UNREAD_MAX = 65_536;
const COMPLETIONS_UNREAD_FEW = 1;
const ASYNC_UNREAD_FEW = 8;

/** Records of a completion channel: queues that fired. */
export type ChannelQueue = EventQueue<UverbsCq, UverbsCq>;

interface AsyncRecord {
  /** u64: the program's own identifier for the object, or the port number. */
  readonly element: Uint8Array;
  readonly eventType: number;
}

/**
 * Records of the asynchronous event descriptor; each belongs to an object or to the whole device.
 */
export type AsyncQueue = EventQueue<AsyncRecord, UverbsEventObject | undefined>;

export interface UverbsPd {
  readonly kind: 'pd';
  readonly handle: number;
  readonly pd: PD;
}

export interface UverbsMr {
  readonly kind: 'mr';
  readonly handle: number;
  readonly mr: MR;
  readonly holder: ProcessAllocation;
}

export interface UverbsMw {
  readonly kind: 'mw';
  readonly handle: number;
  readonly mw: MW;
}

export interface UverbsAh {
  readonly kind: 'ah';
  readonly handle: number;
  readonly ah: AH;
}

interface ObjectFile {
  readonly client: KernelClient;
  readonly asyncQueue: AsyncQueue;
  readonly device: { readonly name: string };
}

export abstract class UverbsEventObject extends EventSink {
  readonly file: ObjectFile;
  readonly handle: number;
  /** u64: the program's identifier for it. */
  readonly userHandle: Uint8Array;
  /** Asynchronous events that the program has read. */
  asyncDelivered = 0;
  asyncUnread = 0;

  constructor(file: ObjectFile, handle: number, userHandle: Uint8Array) {
    super();
    this.file = file;
    this.handle = handle;
    this.userHandle = userHandle;
  }

  override handleObjectEvent(event: HostAsyncEvent): void {
    const report = eventReport(event, this.file.device.name, false);
    if (report !== undefined) this.file.client.record(report);
    if (!this.mayWait(this.asyncUnread, ASYNC_UNREAD_FEW)) return;
    this.asyncUnread += 1;
    this.file.client.unreadEvents += 1;
    this.file.asyncQueue.push({ element: this.userHandle, eventType: event.event }, this);
  }

  override get user(): number | object | undefined {
    const { client } = this.file;
    return userOf(client.credentials.uid, client);
  }

  noteAsyncRead(): void {
    this.asyncDelivered += 1;
    this.asyncUnread -= 1;
    this.file.client.unreadEvents -= 1;
  }

  /** The object is gone, and its unread events with it. */
  forgetEvents(): void {
    this.file.client.unreadEvents -= this.asyncUnread;
    this.asyncUnread = 0;
  }

  /** True if the object may have another unread record, besides `unread` others. */
  protected mayWait(unread: number, few: number): boolean {
    if (unread < few) return true;
    return unread < UNREAD_MAX && this.file.client.unreadEvents < CLIENT_UNREAD_MAX;
  }
}

export class UverbsCq extends UverbsEventObject {
  readonly kind = 'cq';
  readonly cq: CQ;
  /** Replaced by a resize. */
  ring: Ring;
  readonly channel: ChannelQueue | undefined;
  /** Completion events that the program has read. */
  completionsDelivered = 0;
  completionsUnread = 0;

  constructor(
    file: ObjectFile,
    handle: number,
    parts: Pick<UverbsCq, 'userHandle' | 'cq' | 'ring' | 'channel'>,
  ) {
    super(file, handle, parts.userHandle);
    this.cq = parts.cq;
    this.ring = parts.ring;
    this.channel = parts.channel;
    parts.cq.hasChannel = parts.channel !== undefined;
  }

  override handleCompletion(): void {
    if (this.channel === undefined) return;
    if (!this.mayWait(this.completionsUnread, COMPLETIONS_UNREAD_FEW)) this.channel.noteTaken();
    if (!this.mayWait(this.completionsUnread, COMPLETIONS_UNREAD_FEW)) return;
    this.completionsUnread += 1;
    this.file.client.unreadEvents += 1;
    this.channel.push(this, this);
  }

  override forgetEvents(): void {
    super.forgetEvents();
    this.file.client.unreadEvents -= this.completionsUnread;
    this.completionsUnread = 0;
  }

  noteRead(): void {
    this.completionsDelivered += 1;
    this.completionsUnread -= 1;
    this.file.client.unreadEvents -= 1;
  }
}

export class UverbsSrq extends UverbsEventObject {
  readonly kind = 'srq';
  readonly srq: SRQ;
  /** Replaced by a resize. */
  ring: Ring;

  constructor(
    file: ObjectFile,
    handle: number,
    parts: Pick<UverbsSrq, 'userHandle' | 'srq' | 'ring'>,
  ) {
    super(file, handle, parts.userHandle);
    this.srq = parts.srq;
    this.ring = parts.ring;
  }
}

export class UverbsQp extends UverbsEventObject implements WatchedSends {
  readonly kind = 'qp';
  readonly qp: QP;
  readonly words: SendWords;
  readonly sendRing: Ring;
  /** Undefined with a shared receive queue. */
  readonly receiveRing: Ring | undefined;
  /** As the program set them. Not enforced: access is checked by region. */
  accessFlags = 0;
  watched = false;
  emptyLooks = 0;
  streaming = 0;

  constructor(
    file: ObjectFile,
    handle: number,
    parts: Pick<UverbsQp, 'userHandle' | 'qp' | 'words' | 'sendRing' | 'receiveRing'>,
  ) {
    super(file, handle, parts.userHandle);
    this.qp = parts.qp;
    this.words = parts.words;
    this.sendRing = parts.sendRing;
    this.receiveRing = parts.receiveRing;
  }

  override handleFailure(failure: DeviceFailure): void {
    this.file.client.record(failureReport(failure, this.file.device.name, false));
  }
}

export type UverbsObject =
  | UverbsAh
  | UverbsPd
  | UverbsMr
  | UverbsMw
  | UverbsCq
  | UverbsSrq
  | UverbsQp;
