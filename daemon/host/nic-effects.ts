/** Executes effects of a host's NICs: completions, events, failures, and output of queue pairs. */
import { AsyncEventType } from '#contract/verbs/enums';
import type { NicEffect } from '../rnic/effect.ts';
import type { FailedWork } from '../rnic/failure-cause.ts';
import {
  failureSentence,
  flushSentence,
  foundText,
  type PeerFacts,
} from '../rnic/failure-sentence.ts';
import { QP } from '../rnic/queue-pair.ts';
import type { CQ } from '../rnic/queues/completion-queue.ts';
import type { SRQ } from '../rnic/queues/shared-receive-queue.ts';
import type { Conduits } from './conduits.ts';
import type { EmulatedDevice } from './emulated-device.ts';
import type { HostFaults } from './host-faults.ts';
import type { HostSide } from './host-side.ts';
import { LaterTurns } from './later-turns.ts';
import type { HostClock } from './links/network.ts';
import type { HostNotice } from './observer.ts';
import { peerFacts, type UserCheck } from './peer-facts.ts';

/** An asynchronous event of a device. */
export interface HostAsyncEvent {
  readonly event: AsyncEventType;
  readonly object: QP | CQ | SRQ | undefined;
  readonly text: string;
}

/** Failed work of a queue pair, with facts from the other end. */
export interface HostFailure {
  readonly qp: QP;
  /** The work request; undefined for all flushed ones together. */
  readonly work: FailedWork | undefined;
  readonly sentence: string;
}

/** Asynchronous events that report no failure: requested, or the result of closing a connection. */
const NORMAL_EVENTS: readonly AsyncEventType[] = [
  AsyncEventType.commEst,
  AsyncEventType.sqDrained,
  AsyncEventType.srqLimitReached,
  AsyncEventType.qpLastWqeReached,
  AsyncEventType.portActive,
  AsyncEventType.gidChange,
];

/** Interface of the effects to their host. */
interface EffectHost {
  readonly devices: readonly EmulatedDevice[];
  readonly clock: HostClock;
  readonly faults: HostFaults;
  readonly isSameUser: UserCheck;
  doorbell(qp: QP): void;
  notice(notice: HostNotice): void;
  onCompletion(cq: CQ): void;
  onAsync(device: EmulatedDevice, event: HostAsyncEvent): void;
  onFailure(device: EmulatedDevice, failure: HostFailure): void;
}

export class NicEffects {
  readonly #host: EffectHost;
  readonly #sides: readonly HostSide[];
  /** The conduits of iWARP's queue pairs. */
  readonly #conduits: Conduits;
  readonly #later: LaterTurns;

  constructor(host: EffectHost, sides: readonly HostSide[], conduits: Conduits) {
    this.#host = host;
    this.#sides = sides;
    this.#conduits = conduits;
    this.#later = new LaterTurns(
      (run) => host.clock.soon(run),
      (qp) => host.doorbell(qp),
    );
  }

  /** Executes all effects; true if there were any. */
  drain(): boolean {
    let any = false;
    for (const device of this.#host.devices) {
      for (;;) {
        const effect = device.nic.pollEffect();
        if (effect === undefined) break;
        any = true;
        this.#act(device, effect);
      }
    }
    return any;
  }

  /** Raises an asynchronous event of a device. */
  raise(
    device: EmulatedDevice,
    event: AsyncEventType,
    object: HostAsyncEvent['object'],
    text: string,
  ): void {
    const qp = object instanceof QP ? object : undefined;
    this.#host.notice({
      level: NORMAL_EVENTS.includes(event) ? 'debug' : 'warn',
      kind: 'device',
      device: device.name,
      qpn: qp?.qpn,
      remote: qp && this.#conduits.of(qp)?.endpoint.remote,
      text,
    });
    this.#host.onAsync(device, { event, object, text });
  }

  #act(device: EmulatedDevice, effect: NicEffect): void {
    switch (effect.type) {
      case 'completion':
        if (this.#host.faults.injector.notifications === undefined)
          this.#host.onCompletion(effect.cq);
        else this.#host.faults.notify(device, effect.cq);
        return;
      case 'async': {
        const { object, event, text } = effect;
        if (object instanceof QP) {
          for (const side of this.#sides) side.handleEvent(object, event, text);
        }
        this.raise(device, event, object, text + this.#peerText(effect));
        return;
      }
      case 'failed': {
        const { qp, work } = effect;
        this.#host.onFailure(device, {
          qp,
          work,
          sentence: failureSentence(work, this.#peerOf(qp)),
        });
        return;
      }
      case 'flushed': {
        const { qp, work } = effect;
        const sentence = flushSentence(work, qp.qpn, this.#peerOf(qp));
        this.#host.onFailure(device, { qp, work: undefined, sentence });
        return;
      }
      case 'transmit':
        for (const side of this.#sides) side.handleOutput(effect.qp);
        return;
      case 'abort':
        for (const side of this.#sides) side.handleStopped(effect.qp, effect.why);
        return;
      case 'disconnect':
        for (const side of this.#sides) side.handleDisconnect(effect.qp);
        return;
      case 'resume':
        this.#later.add(effect.qp);
        return;
      default:
        effect satisfies never;
    }
  }

  #peerOf(qp: QP): PeerFacts | undefined {
    return peerFacts(qp, this.#host.devices, this.#conduits, this.#host.isSameUser);
  }

  /** The peer's view, for an event about an access that the peer refused. */
  #peerText({ object }: Extract<NicEffect, { type: 'async' }>): string {
    if (!(object instanceof QP)) return '';
    const { cause } = object;
    if (cause?.kind !== 'wire' || cause.by === 'us') return '';
    return foundText(cause, this.#peerOf(object));
  }
}
