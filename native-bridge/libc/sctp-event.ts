/**
 * Messages and notifications received by an SCTP socket of the kernel or of libusrsctp (RFC 6458). The
 * structures are the same in both, most of the numbers are not.
 */
import { addressOf } from './libc.ts';

/** Memory for received messages. */
export class ReceiveArea {
  readonly bytes: Uint8Array;
  readonly fields: DataView;
  readonly address: number;

  constructor(length: number) {
    this.bytes = new Uint8Array(length);
    this.fields = new DataView(this.bytes.buffer);
    this.address = Number(addressOf(this.bytes));
  }
}

/** Information about the last message received by any socket. */
export interface ReceivedFacts {
  readonly isNotification: boolean;
  /** False for a part of a message without its end. */
  readonly isEnd: boolean;
  readonly streamId: number;
  readonly unordered: boolean;
  readonly payloadProtocol: number;
}

/** Send options of a message; see `MessageKind` of the host. */
export interface SctpMessageKind {
  readonly payloadProtocol: number;
  readonly unordered: boolean;
  readonly acknowledgeAtOnce: boolean;
  readonly followed?: boolean;
}

/** States of an association (`sac_state`), in the order of their numbers. */
const STATES = ['up', 'lost', 'restart', 'shutdown-complete', 'cannot-start'] as const;

export type SctpEvent =
  | {
      readonly type: 'association';
      readonly state: (typeof STATES)[number];
      readonly streamsOut: number;
      readonly streamsIn: number;
      /** The peer sent an ABORT. */
      readonly aborted: boolean;
    }
  | { readonly type: 'adaptation'; readonly value: number }
  | { readonly type: 'shutdown' | 'partial-delivery' | 'dry' | 'other' };

/** The socket of an association. No call blocks. */
export interface AssociationSocket {
  /** Sends a whole message. Returns its length or a negative errno; EAGAIN without room. */
  send(streamId: number, kind: SctpMessageKind, bytes: Uint8Array): number;
  /**
   * Receives a message, a part of one, or a notification into `area` from `start` on. Returns its length, 0
   * at the end, or a negative errno.
   */
  receive(area: ReceiveArea, start: number): number;
  /** Facts about the last `receive`. */
  readonly received: ReceivedFacts;
  /** Reads the notification of `length` bytes at the start of `area`. */
  readEvent(area: ReceiveArea, length: number): SctpEvent;
  /** True if there is room for a message. */
  readonly writable: boolean;
  /** Unacknowledged messages, sent or queued. */
  readonly unacknowledged: number;
  /** Sends SHUTDOWN after everything else. */
  shutdown(): void;
  /** Sends ABORT, if there is an association, and closes. */
  abort(): void;
  close(): void;
}

/** Options of a new socket; accepted sockets inherit them. */
export interface AssociationOptions {
  readonly adaptation: number;
  /** Requested in each direction. */
  readonly streamCount: number;
  /** Bytes of unacknowledged messages, and of received messages that are not yet read. */
  readonly sendBytes: number;
  readonly receiveBytes: number;
}

interface EventNumbers {
  readonly association: number;
  readonly shutdown: number;
  readonly adaptation: number;
  readonly partialDelivery: number;
  readonly senderDry: number;
  readonly firstState: number;
}

/** struct sctp_assoc_change: state, streams, and the chunk that the peer sent, if any. */
const Change = { state: 8, outbound: 12, inbound: 14, chunk: 20 } as const;
/** struct sctp_adaptation_event. */
const ADAPTATION_VALUE = 8;
const HEADER_BYTES = 8;

/** Reads the notification of `length` bytes at the start of `area`. */
export function readEvent(
  { fields }: ReceiveArea,
  length: number,
  numbers: EventNumbers,
): SctpEvent {
  const type = length < HEADER_BYTES ? -1 : fields.getUint16(0, true);
  if (type === numbers.association && length >= Change.chunk) {
    const state = STATES[fields.getUint16(Change.state, true) - numbers.firstState];
    if (state === undefined) return { type: 'other' };
    return {
      type: 'association',
      state,
      streamsOut: fields.getUint16(Change.outbound, true),
      streamsIn: fields.getUint16(Change.inbound, true),
      aborted: length > Change.chunk,
    };
  }
  if (type === numbers.adaptation && length >= ADAPTATION_VALUE + 4) {
    return { type: 'adaptation', value: fields.getUint32(ADAPTATION_VALUE, true) };
  }
  if (type === numbers.shutdown) return { type: 'shutdown' };
  if (type === numbers.partialDelivery) return { type: 'partial-delivery' };
  if (type === numbers.senderDry) return { type: 'dry' };
  return { type: 'other' };
}
