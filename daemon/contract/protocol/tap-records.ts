/**
 * Traffic of the daemon's connections and work of its devices, as the daemon sends them to a
 * watcher (role `tap`).
 *
 * The watcher sends one `request` frame with a `TapFilter`. The daemon answers with a `reply`, or
 * an `error`, and then sends `event` frames, whose id is the number of the link, until either side
 * closes. Their payload, little endian:
 *
 * ```
 *  u8 kind | u8 by (0 us, 1 peer) | u8[6] zero | f64 microseconds since 1970 | body
 * ```
 *
 * Bodies: `opened` and `skipped` have a value (`ipc-value.ts`) with the link's ends; `joined` a
 * value with the link's present queue pairs (`LinkQueuePairs`); `bytes` the bytes that passed;
 * `lost` an f64 with the number of bytes that passed and were dropped because the watcher was slow.
 * Bytes are in order for each link and direction. A link that was already open begins with its
 * startup frames, as if the FPDUs in between had not been sent; one with markers is `skipped`.
 *
 * `packet` reports a packet between queue pairs of emulated devices that have no links, with the body
 * in `packet-records.ts`. `posted` and `completed` report the work of emulated devices; with the bodies in
 * `work-records.ts`. `refusal` has a value, a `Refusal` of `refusals.ts`. All four use link 0. A `lost` of link 0 counts such
 * records. All records are in the order of the events.
 */
import { viewOf } from '#base/checked-bytes';
import { FRAME_HEADER_BYTES, FrameType, type IpcFrame, writeFrameHeader } from './ipc-frames.ts';
import { IpcFormatError } from './ipc-value.ts';

/** Bytes of a record before its body. */
const HEAD_BYTES = 16;
/** The longest body; longer runs of bytes are split into several records. */
export const TAP_BODY_MAX_BYTES = 64 * 1024;

/** Kind of a record. */
export const TapKind = {
  opened: 1,
  bytes: 2,
  /** A FIN. */
  finished: 3,
  /** The link has ended. */
  closed: 4,
  /** The link has ended by a reset. */
  reset: 5,
  lost: 6,
  skipped: 7,
  /** A device took a work request. */
  posted: 8,
  /** A device wrote a completion. */
  completed: 9,
  /** A link was assigned its queue pair. */
  joined: 10,
  /** A packet between two queue pairs. */
  packet: 11,
  /** A program's call was refused. */
  refusal: 12,
} as const;
export type TapKind = (typeof TapKind)[keyof typeof TapKind];

/** Which side did it, as the daemon sees it. */
export type TapSide = 'us' | 'peer';

/** Topics that can be watched. */
export const TAP_TOPICS = ['links', 'packets', 'posted', 'completed', 'refusals'] as const;
export type TapTopic = (typeof TAP_TOPICS)[number];

/**
 * Selects links that match all given fields, and the work and refusals of queue pairs that match them
 * directly or through their link; without queue pairs and links, all refusals of the device.
 */
export interface TapFilter {
  /** Default: links only. */
  readonly topics?: readonly TapTopic[];
  /** Name of a device. */
  readonly device?: string;
  /** Numbers of queue pairs; each device numbers its own. */
  readonly qps?: readonly number[];
  /** An address of either end. */
  readonly address?: string;
  /** A port of either end. */
  readonly port?: number;
  /** Only these links. */
  readonly links?: readonly TapLinkEnds[];
}

/** The ends of a link: addresses as text, and ports. */
export interface TapLinkEnds {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

/** A queue pair of the daemon. */
export interface QueuePairName {
  /** Name of the device. */
  readonly device: string;
  /** Number of the queue pair. */
  readonly qpn: number;
}

/** The known queue pairs of a link. */
export interface LinkQueuePairs {
  /** Queue pair of the end that counts as 'us'. */
  readonly us?: QueuePairName;
  /** Queue pair of the other end, if it belongs to the daemon too. */
  readonly peer?: QueuePairName;
}

/** The head of a record, and its body, which borrows from the input. */
export interface TapRecord {
  readonly kind: number;
  readonly by: TapSide;
  readonly link: number;
  readonly micros: number;
  readonly body: Uint8Array;
}

/** Bytes of the frame of a record. */
export function tapRecordBytes(bodyBytes: number): number {
  return FRAME_HEADER_BYTES + HEAD_BYTES + bodyBytes;
}

/** The frame of a record. */
export function emitTapRecord(
  kind: TapKind,
  by: TapSide,
  link: number,
  micros: number,
  body: Uint8Array,
): Uint8Array {
  const bytes = new Uint8Array(tapRecordBytes(body.length));
  putTapRecord(bytes, kind, by, link, micros, body);
  return bytes;
}

/** Fills `target`, of `tapRecordBytes` bytes, with the frame of a record. */
export function putTapRecord(
  target: Uint8Array,
  kind: TapKind,
  by: TapSide,
  link: number,
  micros: number,
  body: Uint8Array,
): void {
  writeFrameHeader(target, FrameType.event, link);
  const fields = viewOf(target.subarray(FRAME_HEADER_BYTES));
  fields.setUint8(0, kind);
  fields.setUint8(1, by === 'us' ? 0 : 1);
  for (let at = 2; at < 8; at++) fields.setUint8(at, 0);
  fields.setFloat64(8, micros, true);
  target.set(body, FRAME_HEADER_BYTES + HEAD_BYTES);
}

/** Parses the frame of a record. Throws `IpcFormatError` if it is malformed. */
export function parseTapRecord({ type, id, payload }: IpcFrame): TapRecord {
  if (type !== FrameType.event || payload.length < HEAD_BYTES) {
    throw new IpcFormatError(`frame of type ${type} instead of a record`);
  }
  const fields = viewOf(payload);
  return {
    kind: fields.getUint8(0),
    by: fields.getUint8(1) === 0 ? 'us' : 'peer',
    link: id,
    micros: fields.getFloat64(8, true),
    body: payload.subarray(HEAD_BYTES),
  };
}

/** The body of a `lost` record. */
export function emitLostBytes(bytes: number): Uint8Array {
  const body = new Uint8Array(8);
  new DataView(body.buffer).setFloat64(0, bytes, true);
  return body;
}

/** Parses the body of a `lost` record. Throws `IpcFormatError`. */
export function parseLostBytes(body: Uint8Array): number {
  if (body.length !== 8) throw new IpcFormatError('the loss record lacks its number');
  return viewOf(body).getFloat64(0, true);
}
