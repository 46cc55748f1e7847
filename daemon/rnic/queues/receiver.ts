/**
 * Handles the peer's Sends and Immediate Data for a queue pair: takes a receive for each message,
 * places the message into it, and completes it.
 *
 * The queue pair checks beforehand that its stream may place data.
 */
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPType } from '#contract/verbs/enums';
import { type Cause, type CauseHolder, namedRange, refusedAccess } from '../failure-cause.ts';
import type { WindowUser } from '../memory/memory-window.ts';
import { invalidateRemotely, type StagHost } from '../memory/stag-operations.ts';
import type { NicCounters } from '../nic-counters.ts';
import type { QPInit, QPLayout } from '../queue-pair-init.ts';
import { TURN_ELEMENTS_MAX } from '../rings/ring.ts';
import { AccessRefusal, type InboundMessage } from '../wire-port.ts';
import type { CompletionGate } from './completion-gate.ts';
import type { CQ } from './completion-queue.ts';
import { ReceiveQueue } from './receive-queue.ts';
import type { WorkWatch } from './work-watch.ts';

/** Our own program posted an invalid receive. */
const MALFORMED: Cause = {
  kind: 'request',
  text: 'the receive has more SGEs than max_recv_sge of its queue',
};

const SL_IPV6 = 1;
const SL_IPV4 = 2;

interface ReceiverHost extends StagHost {
  readonly counters: NicCounters;
  readonly watch: WorkWatch;
}

/** The receives of one queue pair, from the first segment of a message to its completion. */
export class Receiver {
  /** Receives consumed by messages. */
  taken = 0;
  /** Messages that found no receive posted. */
  missed = 0;
  readonly #host: ReceiverHost;
  readonly #user: WindowUser & CauseHolder;
  readonly #queue: ReceiveQueue;
  readonly #cq: CQ;
  readonly #gate: CompletionGate;
  readonly #datagrams: boolean;
  /** Service level of the datagram in the active receive. */
  #sl = 0;

  constructor(
    host: ReceiverHost,
    user: WindowUser & CauseHolder,
    init: QPInit,
    layout: QPLayout,
    gate: CompletionGate,
  ) {
    this.#host = host;
    this.#user = user;
    this.#queue = new ReceiveQueue(layout, init.srq, user.pd, host.stags);
    this.#cq = init.recvCQ;
    this.#gate = gate;
    this.#datagrams = init.type === QPType.ud;
  }

  /** Forgets the ring of a destroyed QP. */
  end(): void {
    this.#queue.endRing();
  }

  /** True from the message's first segment to its completion. */
  get active(): boolean {
    return this.#queue.active;
  }

  begin(): AccessRefusal {
    const queue = this.#queue;
    const { watch, counters } = this.#host;
    if (watch.observer !== undefined) queue.reportNext(watch, this.#user.qpn);
    const refusal = queue.take();
    if (refusal === AccessRefusal.noBuffer) {
      this.missed += 1;
      counters.missingReceives += 1;
      this.#user.found = queue.lack;
      return refusal;
    }
    this.taken += 1;
    counters.receivesTaken += 1;
    // Our own consumer posted an invalid receive.
    if (refusal !== AccessRefusal.none) {
      this.#user.found = MALFORMED;
      this.#end(CQEStatus.locQpOpErr);
    }
    return refusal;
  }

  /** See `WireUser.placeReceive`. A receive must be active. */
  place(mo: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    const queue = this.#queue;
    // RDMAP-5.3-04: nothing of the segment is placed.
    if (mo + length > queue.capacityBytes) {
      this.#host.counters.tooLongMessages += 1;
      const receiveBytes = queue.capacityBytes;
      this.#user.found = { kind: 'too-long', messageBytes: mo + length, receiveBytes };
      this.#end(CQEStatus.locLenErr);
      return AccessRefusal.messageTooLong;
    }
    if (this.#datagrams && mo === 0) this.#sl = packetType(bytes[start] ?? 0);
    // If earlier bytes were lost, the queue pair failed and has flushed this receive.
    const gate = this.#gate;
    gate.kind = 'receive';
    const refusal = queue.place(mo, bytes, start, length, gate);
    if (refusal === AccessRefusal.none) this.#host.counters.placedBytes += length;
    else if (queue.active) {
      this.#user.found = queue.refusalCause(refusal);
      this.#end(CQEStatus.locProtErr);
    }
    return refusal;
  }

  /** See `WireUser.completeReceive`. A receive must be active; the gate waits for its data. */
  complete(message: InboundMessage): AccessRefusal {
    const { counters } = this.#host;
    let flags = message.solicited ? QueueFlag.solicited : 0;
    let hi = 0;
    let lo = 0;
    if (message.invalidates) {
      // RDMAP-5.3-09, RDMAP-5.3-11: invalidate before the consumer can see the completion.
      const refusal = invalidateRemotely(this.#host, this.#user, message.invalidateStag);
      if (refusal !== AccessRefusal.none) {
        counters.accessErrors += 1;
        const range = namedRange(message.invalidateStag, 0, 0, 0);
        this.#user.found = refusedAccess(this.#host.stags, this.#user, range, 0, refusal);
        this.#end(CQEStatus.remInvReqErr);
        return refusal;
      }
      counters.invalidations += 1;
      flags |= QueueFlag.remoteInvalidate;
      lo = message.invalidateStag;
    } else if (message.hasImmediate) {
      flags |= QueueFlag.immediate;
      hi = message.immediateHi;
      lo = message.immediateLo;
    }
    const { lengthBytes, solicited, hasImmediate } = message;
    const { completion } = this.#gate;
    completion.written = message.written;
    completion.sourceQpn = message.sourceQpn;
    completion.sl = this.#datagrams ? this.#sl : 0;
    if (hasImmediate) counters.inImmediates += 1;
    else counters.inSends += 1;
    this.#report(CQEStatus.success, lengthBytes, flags, hi, lo, solicited);
    return AccessRefusal.none;
  }

  /** True if receives are posted in its own ring. */
  get posted(): boolean {
    return this.#queue.ownElements?.ready() === true;
  }

  /**
   * Completes in error the active receive and those in its own ring, oldest first. Returns true if more
   * remain after a turn's share.
   */
  flush(): boolean {
    const queue = this.#queue;
    if (queue.active) this.#end(CQEStatus.wrFlushErr);
    const elements = queue.ownElements;
    if (elements === undefined) return false;
    const { watch } = this.#host;
    const gate = this.#gate;
    const share = Math.min(elements.count, TURN_ELEMENTS_MAX);
    for (let budget = share; budget > 0; budget -= 1) {
      if (gate.full || !elements.ready()) return false;
      if (watch.observer !== undefined) queue.reportNext(watch, this.#user.qpn);
      queue.takeFlushed();
      if (!this.#end(CQEStatus.wrFlushErr) && watch.observer === undefined) {
        const skipped = elements.skip?.() ?? 0;
        queue.countCompleted(skipped);
        gate.lose(this.#cq, skipped);
        break;
      }
    }
    return elements.ready();
  }

  /** Data of the active receive, if any, did not reach its memory. */
  fail(): void {
    if (this.#queue.active) this.#end(CQEStatus.locProtErr);
  }

  /** The completion of the oldest ended receive was written. */
  countCompleted(): void {
    this.#queue.countCompleted(1);
  }

  /** Forgets all receives without completing them (RESET). */
  reset(): void {
    this.#queue.reset();
  }

  /** Returns false if the completion queue is full. */
  #end(status: CQEStatus): boolean {
    const { completion } = this.#gate;
    completion.written = false;
    completion.sourceQpn = 0;
    completion.sl = 0;
    return this.#report(status, 0, 0, 0, 0, false);
  }

  #report(
    status: CQEStatus,
    bytes: number,
    flags: number,
    hi: number,
    lo: number,
    solicited: boolean,
  ): boolean {
    const queue = this.#queue;
    queue.end();
    const { completion } = this.#gate;
    completion.wrIdLo = queue.wrIdLo;
    completion.wrIdHi = queue.wrIdHi;
    completion.opcode = SQOpcode.receive;
    completion.status = status;
    completion.lengthBytes = bytes;
    completion.flags = flags;
    completion.immediateHi = hi;
    completion.immediateLo = lo;
    completion.solicited = solicited;
    return this.#gate.report(this.#cq);
  }
}

/**
 * The service level of a datagram's completion, from the first byte of its GRH: UCX reads it as mlx5's
 * packet type and drops packets that are neither IPv4 nor IPv6.
 */
function packetType(first: number): number {
  return first >>> 4 === 6 ? SL_IPV6 : SL_IPV4;
}
