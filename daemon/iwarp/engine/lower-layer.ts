/**
 * The lower layer of one stream (LLP): the operations of MPA over TCP, or of SCTP, that DDP, RDMAP
 * and the stream use. It sets the stream up, carries ULPDUs in order, and ends it.
 *
 * Like the stream it does no I/O: the stream passes on commands and inputs, then drains `pollEffect`.
 */
import type { Micros } from '#base/time';
import type { Delivery, Transmit } from '#base/transmit';
import type { Loans } from '#daemon/rnic/wire-port';
import type { ProtocolError } from '../wire/protocol-error.ts';
import type { RtrKind } from './negotiation.ts';
import type { Agreement, StartupEvent } from './stream-api.ts';
import type { StreamFailure } from './stream-failure.ts';

/** Takes the ULPDUs of one stream, in order. */
export interface UlpduSink {
  /**
   * One verified ULPDU: `bytes[start, start + length)`, borrowed for the call. `length` is 0 to
   * 65535, as the peer sent it. An error ends the stream's input (MPA-8-07).
   */
  handleUlpdu(bytes: Uint8Array, start: number, length: number): ProtocolError | undefined;
  /** The bytes of the ULPDUs delivered since the last call are about to change. */
  handleInputEnd?(): void;
}

/** Where DDP writes its segments, one after the other, in place. */
export interface UlpduWriter {
  /** The buffer of the current ULPDU. Valid from `begin` to `commit`. */
  readonly bytes: Uint8Array;
  /** Where to write the current ULPDU in `bytes`. Valid from `begin` to `commit`. */
  readonly ulpduStart: number;
  /**
   * Reserves room for a ULPDU. Returns false when the output is full. A second `begin` without
   * `commit` drops the reservation. Throws `RangeError` for a length that must not be sent.
   */
  begin(ulpduLength: number): boolean;
  /** Completes the current ULPDU: it will be sent. */
  commit(): void;
  /** The longest ULPDU worth posting now, at most `mulpduBytes`. */
  ulpduRoomBytes(mulpduBytes: number): number;
  /** Payload that its output stands for; undefined if it cannot. */
  readonly loans?: Loans | undefined;
  /** True if the payload of the next ULPDU may be lent. */
  readonly lends?: boolean;
  /** Bytes that wait to be sent. */
  readonly queuedBytes: number;
  /** Lifts the limit of the output: only little output remains to be framed. */
  liftHighWater(): void;
}

/** Effects for the stream while a connection is set up. */
export type SetupEffect =
  /** Report it. */
  | StartupEvent
  /**
   * Full Operation. With `error`, the first and only message is a Terminate with that error;
   * otherwise, with `rtr`, the first message is that indication (EMPA-5-02).
   */
  | {
      readonly type: 'full-operation';
      readonly agreement: Agreement;
      readonly rtr: RtrKind | undefined;
      readonly error: ProtocolError | undefined;
    }
  /**
   * The stream has failed and frames no more messages. The connection is closed with FIN, with a reset, or
   * once the queued output is sent.
   */
  | {
      readonly type: 'failed';
      readonly failure: StreamFailure;
      readonly close: 'finish' | 'abort' | 'flush';
    };

export type LowerEffect =
  | SetupEffect
  /** The peer has ended its half after its last ULPDU. */
  | { readonly type: 'peer-finished' };

export interface LowerLayer {
  readonly writer: UlpduWriter;

  // Commands

  /** Initiator: asks for a connection. Throws `RangeError` for too long Private Data. */
  connect(privateData: Uint8Array, now: Micros): void;
  /** Responder: waits for a request, at most for the startup timeout. */
  listen(now: Micros): void;
  /** Responder: answers the request. Throws `RangeError` for too long Private Data. */
  accept(
    privateData: Uint8Array,
    consumerDepths: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void;
  reject(privateData: Uint8Array): void;
  /** Responder: refuses the request without a decision of its consumer. */
  refuse(): void;
  leaveUnsealed(): void;
  /** See `StreamPort`. */
  lend?(loans: Loans): void;
  seal(bytes: Uint8Array): void;
  /** A local error ends the startup. */
  failLocally(text: string): void;
  /** Carries out the effect 'full-operation': from here on `writer` and `receive` may be used. */
  enterFullOperation(agreement: Agreement): void;
  /** Payload bytes that one packet holds have changed. */
  setPathBytes(pathBytes: number): void;
  /** Ends our half: called once, when everything framed is flushed. `finished` then turns true. */
  finish(): void;
  /** Input is no longer wanted: releases held input. */
  releaseInput(): void;
  /** The connection is gone: releases the output, too. */
  releaseOutput(): void;

  // Inputs

  /**
   * Takes input before Full Operation, borrowed for the call. Returns where in `bytes` the input of Full
   * Operation begins.
   */
  handleStartup(bytes: Uint8Array, delivery: Delivery): number;
  /**
   * Takes input in Full Operation, `bytes[start, end)`, and delivers complete ULPDUs to `sink`. Returns the
   * first error, the sink's or ours, now and on every later call. With no bytes, it delivers held ULPDUs.
   */
  receive(
    bytes: Uint8Array,
    start: number,
    end: number,
    delivery: Delivery,
    sink: UlpduSink,
  ): ProtocolError | undefined;
  /** Takes input that is no longer wanted. Only the peer's end in it counts. */
  drop(bytes: Uint8Array, delivery: Delivery): void;
  /** The connection has taken the oldest `bytes` polled bytes. */
  flushed(bytes: number): void;
  /** The peer has acknowledged everything that the connection has taken. */
  handleAcknowledged(): void;
  /** The connection's end during startup. */
  handlePeerClosed(): void;
  handleDeadline(now: Micros): void;

  // Outputs

  pollEffect(): LowerEffect | undefined;
  /** See `Stream.pollTransmit`. The bytes are reused after `flushed`. */
  pollTransmit(unsegmented?: boolean): Transmit | undefined;
  nextDeadline(): Micros;

  // Getters

  /** The longest ULPDU that DDP should post. */
  readonly mulpduBytes: number;
  /** True when messages may be sent. */
  readonly sendable: boolean;
  /** True when the peer's first ULPDU has been found valid. */
  readonly peerHasSpoken: boolean;
  /** True when a ULPDU has been sent. */
  readonly hasSpoken: boolean;
  /** ULPDUs found valid. */
  readonly receivedCount: number;
  /** True when the peer's end now would cut a ULPDU. */
  readonly midUlpdu: boolean;
  /** The bytes of a partial ULPDU; borrowed until the next input. */
  readonly heldInput: Uint8Array;
  /** True if input from before Full Operation waits to be received. */
  readonly inputWaits: boolean;
  /** Bytes to send that the connection has not taken. */
  readonly queuedBytes: number;
  /** True when our half has ended, and the connection has taken all of it. */
  readonly finished: boolean;
  /** True if the peer has sent everything, although 'peer-finished' was not reported. */
  readonly peerEnded: boolean;
  /** True when our half has arrived, and a peer need not end its own. */
  readonly peerMayStaySilent: boolean;
  /** A loss now would be explained by this known peer's quirk. */
  readonly lossQuirk: string | undefined;
}
