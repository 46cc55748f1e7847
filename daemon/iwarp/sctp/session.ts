/**
 * One DDP stream session of one end (RFC 5043 §6, RFC 6581 §7): which control messages and segments
 * are legal, judged in the order of their DDP-SSNs, and the answers to them.
 *
 * The layer drives it: commands and inputs first, then `pollEffect` until it is empty. This folder's
 * README has the state diagram.
 *
 * Where the RFCs leave a choice: every end of a session sends Terminate, also as the answer to the
 * peer's; a peer that sends none is legal (`peerMayStaySilent`). Enhanced functions are the default,
 * since IRD and ORD are wanted (SCTPE-10-01); MPA revision 1 in the options asks for plain ones. The
 * responder does not wait for an RTR: payload protocols keep setup and segments apart (SCTPE-7-08).
 *
 * Read before changing: RFC 5043 §6; RFC 6581 §7 to §10.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { LowerEffect } from '../engine/lower-layer.ts';
import {
  answerRequest,
  concludeReply,
  type Depths,
  rejectParameters,
  requestParameters,
} from '../engine/negotiation.ts';
import type { Agreement, StreamOptions } from '../engine/stream-api.ts';
import {
  checkSessionMessage,
  SessionFunction,
  type SessionMessage,
  type SessionMessageFault,
} from './session-message.ts';

/** Effects for the layer, in order. */
type SessionEffect = { readonly type: 'transmit'; readonly message: SessionMessage } | LowerEffect;

type State =
  | { readonly name: 'idle' }
  | { readonly name: 'initiating'; readonly request: SessionMessage; readonly deadline: Micros }
  | { readonly name: 'awaiting-initiate'; readonly deadline: Micros }
  | { readonly name: 'awaiting-consumer'; readonly request: SessionMessage }
  /** Segments go both ways; our Terminate may be out. */
  | { readonly name: 'open' }
  /** The peer's Terminate has arrived: nothing may follow it. */
  | { readonly name: 'peer-ended' }
  /** Rejected, refused or failed: further messages are dropped. */
  | { readonly name: 'over' };

const LEGAL: Readonly<Record<State['name'], readonly State['name'][]>> = {
  idle: ['initiating', 'awaiting-initiate', 'over'],
  initiating: ['open', 'over'],
  'awaiting-initiate': ['awaiting-consumer', 'over'],
  'awaiting-consumer': ['open', 'over'],
  open: ['peer-ended', 'over'],
  'peer-ended': ['over'],
  over: [],
};

const NO_BYTES = new Uint8Array(0);
const TERMINATE: SessionMessage = {
  function: SessionFunction.terminate,
  enhanced: undefined,
  privateData: NO_BYTES,
};

const FAULT_TEXT: Readonly<Record<SessionMessageFault, string>> = {
  short: 'a session control message is shorter than 4 bytes',
  function: 'a session control message has an unknown function code',
  'private-data': 'a session control message has more than 512 bytes of Private Data',
  'terminate-data': 'a session Terminate has Private Data',
  enhanced: 'an enhanced session control message has no room for its IRD and ORD',
};

export class DdpSession {
  readonly #options: StreamOptions;
  readonly #effects: SessionEffect[] = [];
  #state: State = { name: 'idle' };
  /** Our last control message may not have arrived: no other one may follow it. */
  #unproven = false;
  #terminateWanted = false;
  #terminateSent = false;
  #peerEnded = false;

  constructor(options: StreamOptions) {
    this.#options = options;
  }

  // Commands

  /** Active side. Throws `RangeError`, with nothing sent, for too long Private Data. */
  connect(privateData: Uint8Array, now: Micros): void {
    const options = this.#options;
    const enhanced = options.mpaRevision === 2 && options.enhancedSupported;
    const request: SessionMessage = {
      function: enhanced ? SessionFunction.enhancedInitiate : SessionFunction.initiate,
      enhanced: enhanced ? requestParameters(options) : undefined,
      privateData,
    };
    checkSessionMessage(request);
    const deadline = now + options.startupTimeoutMicros;
    this.#transition({ name: 'initiating', request, deadline });
    this.#send(request);
  }

  /** Passive side: waits for Initiate, at most for the startup timeout. */
  listen(now: Micros): void {
    const deadline = now + this.#options.startupTimeoutMicros;
    this.#transition({ name: 'awaiting-initiate', deadline });
  }

  /** Passive side: accepts. Does nothing if the session has ended since. */
  accept(
    privateData: Uint8Array,
    consumerDepths: { readonly ird: number; readonly ord: number },
  ): void {
    if (this.#state.name === 'over') return;
    assert(this.#state.name === 'awaiting-consumer', 'no Initiate to accept');
    const { request } = this.#state;
    // SCTPE-10-01: the answer is enhanced as the request was.
    const { reply, depths } = answerRequest(request.enhanced, consumerDepths, this.#options);
    const message: SessionMessage = {
      function: reply === undefined ? SessionFunction.accept : SessionFunction.enhancedAccept,
      enhanced: reply,
      privateData,
    };
    checkSessionMessage(message);
    this.#transition({ name: 'open' });
    this.#send(message);
    const agreement = agreementOf(request, depths);
    this.#effects.push({ type: 'full-operation', agreement, rtr: undefined, error: undefined });
  }

  // SCTP-6.3-02
  /** Passive side: its consumer rejects. */
  reject(privateData: Uint8Array): void {
    if (this.#state.name === 'over') return;
    assert(this.#state.name === 'awaiting-consumer', 'no Initiate to reject');
    const { request } = this.#state;
    const enhanced = rejectParameters(request.enhanced, this.#options);
    const message: SessionMessage = {
      function: enhanced === undefined ? SessionFunction.reject : SessionFunction.enhancedReject,
      enhanced,
      privateData,
    };
    checkSessionMessage(message);
    this.#transition({ name: 'over' });
    this.#peerEnded = true;
    this.#send(message);
  }

  // SCTP-5.2.3-06
  /** Passive side: refuses the Initiate without a decision of its consumer. */
  refuse(): void {
    if (this.#state.name === 'over') return;
    assert(this.#state.name === 'awaiting-consumer', 'no Initiate to refuse');
    this.#transition({ name: 'over' });
    this.#peerEnded = true;
    this.#sendTerminate();
  }

  /** A local error ends the startup. Does nothing once the session is open or over. */
  failLocally(text: string): void {
    const { name } = this.#state;
    if (name === 'open' || name === 'peer-ended' || name === 'over') return;
    this.#fail('local', text);
  }

  /** Ends our half: queues the Terminate last, once it cannot overtake an earlier message. */
  finish(): void {
    const { name } = this.#state;
    if (this.#terminateSent || (name !== 'open' && name !== 'peer-ended')) return;
    if (this.#unproven) this.#terminateWanted = true;
    else this.#sendTerminate();
  }

  // Inputs, in the order of the DDP-SSNs

  /** A control message, or why the bytes are not one. */
  handleMessage(message: SessionMessage | SessionMessageFault): void {
    if (this.#state.name === 'over') return;
    if (typeof message === 'string') {
      this.fail(FAULT_TEXT[message]);
      return;
    }
    switch (this.#state.name) {
      case 'initiating':
        this.#handleAnswer(message, this.#state.request);
        return;
      case 'awaiting-initiate':
        this.#handleInitiate(message);
        return;
      case 'awaiting-consumer':
        if (message.function === SessionFunction.terminate) {
          this.#peerEnded = true;
          this.#fail('lost', 'the initiator ended the session before it was answered');
          return;
        }
        break;
      case 'open':
        if (message.function === SessionFunction.terminate) {
          this.handleProof();
          this.#peerEnded = true;
          this.#transition({ name: 'peer-ended' });
          this.#effects.push({ type: 'peer-finished' });
          return;
        }
        break;
      default:
        break;
    }
    this.fail(`session control function ${message.function} does not fit the sequence`);
  }

  /** A segment: 'deliver' it, 'wait' with it until the consumer has answered, or 'drop' it. */
  handleSegment(): 'deliver' | 'wait' | 'drop' {
    switch (this.#state.name) {
      case 'open':
        // SCTP-6.6-01: the active side sends only after our Accept.
        this.handleProof();
        return 'deliver';
      case 'awaiting-consumer':
        return 'wait';
      case 'over':
        return 'drop';
      case 'peer-ended':
        this.fail('received a DDP segment after the Terminate of the session');
        return 'drop';
      default:
        this.fail('received a DDP segment before the session was accepted');
        return 'drop';
    }
  }

  /** Our last control message has arrived: SCTP acknowledged it, or an answer shows it. */
  // SCTP-6.6-01
  handleProof(): void {
    if (!this.#unproven) return;
    this.#unproven = false;
    if (this.#terminateWanted) this.#sendTerminate();
  }

  // SCTP-6.1-02
  /** The peer broke a rule that has no code: the session ends, without an RDMAP Terminate. */
  fail(text: string): void {
    if (this.#state.name !== 'over') this.#fail('protocol', text);
  }

  /** The association has ended, or the peer ends it. In an open session the stream handles it. */
  handlePeerClosed(): void {
    const { name } = this.#state;
    if (name === 'initiating' || name === 'awaiting-initiate' || name === 'awaiting-consumer') {
      this.#fail('lost', 'the association ended before the session was set up');
    }
  }

  handleDeadline(now: Micros): void {
    if (now < this.nextDeadline()) return;
    const initiating = this.#state.name === 'initiating';
    const awaited = initiating ? 'answer to Initiate' : 'Initiate';
    this.#fail('timeout', `no ${awaited} from the peer within the startup timeout`);
  }

  // Outputs

  pollEffect(): SessionEffect | undefined {
    return this.#effects.shift();
  }

  nextDeadline(): Micros {
    const state = this.#state;
    return 'deadline' in state ? state.deadline : NEVER;
  }

  // Getters

  /** True when segments may be sent. */
  get sendable(): boolean {
    const { name } = this.#state;
    return (name === 'open' || name === 'peer-ended') && !this.#terminateSent;
  }

  /** True while an incoming session is not answered. */
  get unanswered(): boolean {
    const { name } = this.#state;
    return name === 'awaiting-initiate' || name === 'awaiting-consumer';
  }

  /** True when our half has ended: nothing more is queued for this session. */
  get ended(): boolean {
    return this.#terminateSent || this.#state.name === 'over';
  }

  /** True when the peer sends nothing more in this session. */
  get peerEnded(): boolean {
    return this.#peerEnded;
  }

  // SCTP-6.2-01: one Terminate is enough.
  /** True when our Terminate has arrived: a peer that sends none has ended the session, too. */
  get peerMayStaySilent(): boolean {
    return this.#terminateSent && !this.#unproven;
  }

  // Handlers

  #handleAnswer(message: SessionMessage, request: SessionMessage): void {
    const { accept, enhancedAccept, reject, enhancedReject, terminate } = SessionFunction;
    const enhanced = request.enhanced !== undefined;
    this.handleProof();
    switch (message.function) {
      case enhanced ? enhancedAccept : accept:
        this.#handleAccept(message, request);
        return;
      case enhanced ? enhancedReject : reject:
        this.#peerEnded = true;
        this.#transition({ name: 'over' });
        this.#effects.push({
          type: 'rejected',
          privateData: message.privateData,
          peerIrd: message.enhanced?.ird,
          peerOrd: message.enhanced?.ord,
        });
        return;
      case terminate:
        this.#peerEnded = true;
        this.#fail('refused', 'the peer ended the session instead of accepting it');
        return;
      default:
        // SCTPE-7-07
        this.fail(`session control function ${message.function} does not answer the Initiate`);
    }
  }

  #handleAccept(message: SessionMessage, request: SessionMessage): void {
    this.#transition({ name: 'open' });
    const outcome = concludeReply(request.enhanced, message.enhanced, this.#options);
    const { rtr, error } = outcome;
    this.#effects.push({
      type: 'full-operation',
      agreement: agreementOf(message, outcome),
      rtr: error === undefined ? rtr : undefined,
      error,
    });
  }

  #handleInitiate(message: SessionMessage): void {
    const enhanced = message.function === SessionFunction.enhancedInitiate;
    if (!enhanced && message.function !== SessionFunction.initiate) {
      this.fail(`received session control function ${message.function} instead of Initiate`);
      return;
    }
    if (enhanced && !this.#options.enhancedSupported) {
      this.#fail('invalid-frame', 'an enhanced Initiate; only plain ones are spoken here');
      return;
    }
    this.#transition({ name: 'awaiting-consumer', request: message });
    // SCTP-5.2.3-05, SCTPE-7-06
    this.#effects.push({
      type: 'request',
      revision: enhanced ? 2 : 1,
      enhanced,
      privateData: message.privateData,
      peerIrd: message.enhanced?.ird,
      peerOrd: message.enhanced?.ord,
      peerToPeer: message.enhanced?.peerToPeer === true,
    });
  }

  // Parts of effects

  #fail(kind: string, text: string): void {
    const fresh = this.#state.name === 'idle' || this.#state.name === 'awaiting-initiate';
    this.#transition({ name: 'over' });
    this.#terminateWanted = false;
    // SCTP-6.6-01: while a message may be in flight, only aborting the association takes effect immediately.
    const mute = this.#unproven || (fresh && kind !== 'protocol' && kind !== 'invalid-frame');
    // SCTP-5.2.3-06: a refusal ends the session, and nothing answers it.
    if (!mute && kind !== 'refused' && !this.#terminateSent) this.#sendTerminate();
    this.#effects.push({
      type: 'failed',
      failure: { kind, text },
      close: mute ? 'abort' : 'flush',
    });
  }

  #sendTerminate(): void {
    this.#terminateWanted = false;
    this.#terminateSent = true;
    this.#send(TERMINATE);
  }

  #send(message: SessionMessage): void {
    assert(!this.#unproven, 'control message before an earlier one was acknowledged');
    this.#unproven = true;
    this.#effects.push({ type: 'transmit', message });
  }

  #transition(next: State): void {
    const legal = LEGAL[this.#state.name].includes(next.name);
    assert(
      legal,
      `DDP stream session: illegal transition from ${this.#state.name} to ${next.name}`,
    );
    this.#state = next;
  }
}

/** The agreement from the peer's message and the depths. SCTP has its own checksum, and no markers. */
function agreementOf(peer: SessionMessage, depths: Depths): Agreement {
  return {
    ird: depths.ird,
    ord: depths.ord,
    crcEnabled: false,
    sendMarkers: false,
    receiveMarkers: false,
    revision: peer.enhanced === undefined ? 1 : 2,
    peerIrd: peer.enhanced?.ird,
    peerOrd: peer.enhanced?.ord,
    privateData: peer.privateData,
  };
}
