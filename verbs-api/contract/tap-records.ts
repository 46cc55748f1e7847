/**
 * What passes on the daemon's connections, and the work of its devices, as it tells them to whoever
 * watches (role `tap`).
 *
 * The watcher sends one `request` frame with a `TapFilter`. The daemon answers with a `reply`, or an
 * `error`, and then sends `event` frames, whose id is the number of the link, until either side
 * closes. Their payload, little endian:
 *
 * ```
 *  u8 kind | u8 by (0 us, 1 peer) | u8[6] zero | f64 microseconds since 1970 | body
 * ```
 *
 * The body of `opened` and `skipped` is a value (`ipc-value.ts`) with the link's ends, that of
 * `joined` a value with the queue pairs that the link has now (`LinkQueuePairs`), that of `octets`
 * what passed, that of `lost` an f64: how many octets passed and are not told, since the watcher was
 * slow. Octets are told in order for each link and direction. A link that was open already begins
 * with its startup frames, as if the FPDUs between had not been; one with markers is `skipped`.
 *
 * `posted` and `completed` tell the work of emulated devices; they are of link 0, and their bodies
 * stand in `work-records.ts`. A `lost` of link 0 counts such records. All records come in the order
 * of what they tell.
 */
import { FRAME_HEADER_BYTES, type Frame, FrameType, writeFrameHeader } from './ipc-frames.ts';
import { IpcFormatError } from './ipc-value.ts';

/** Octets of a record before its body. */
const HEAD_BYTES = 16;
/** The longest body; longer stretches of octets come in several records. */
export const TAP_BODY_MAX_BYTES = 64 * 1024;

/** What a record tells. */
export const TapKind = {
  opened: 1,
  octets: 2,
  /** A FIN. */
  finished: 3,
  /** The link is gone. */
  closed: 4,
  /** The link is gone by a reset. */
  reset: 5,
  lost: 6,
  skipped: 7,
  /** A work request was taken by a device. */
  posted: 8,
  /** A completion was written by a device. */
  completed: 9,
  /** A link has got its queue pair. */
  joined: 10,
} as const;
export type TapKind = (typeof TapKind)[keyof typeof TapKind];

/** Who did it, as the daemon sees it. */
export type TapSide = 'us' | 'peer';

/** What can be told. */
export const TAP_TOPICS = ['links', 'posted', 'completed'] as const;
export type TapTopic = (typeof TAP_TOPICS)[number];

/**
 * What is watched: links that meet everything given here, and the work of queue pairs that do, by
 * themselves or by a link that they have.
 */
export interface TapFilter {
  /** Default: links alone. */
  readonly topics?: readonly TapTopic[];
  /** Name of a device. */
  readonly device?: string;
  /** Numbers of queue pairs; each device has its own numbers. */
  readonly qps?: readonly number[];
  /** An address of either end. */
  readonly address?: string;
  /** A port of either end. */
  readonly port?: number;
  /** Only these. */
  readonly links?: readonly TapLinkEnds[];
}

/** The ends of a link. */
export interface TapLinkEnds {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
}

/** A queue pair of the daemon. */
export interface QueuePairName {
  readonly device: string;
  readonly qpn: number;
}

/** The queue pairs that a link is known to have. */
export interface LinkQueuePairs {
  /** That of the end that is told as 'us'. */
  readonly us?: QueuePairName;
  /** That of the other end, where the daemon has it too. */
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

/** Octets of the frame of a record. */
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
  const octets = new Uint8Array(tapRecordBytes(body.length));
  putTapRecord(octets, kind, by, link, micros, body);
  return octets;
}

/** Fills `target`, of `tapRecordBytes` octets, with the frame of a record. */
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

/** Parses the frame of a record. Throws `IpcFormatError` when it is none. */
export function parseTapRecord({ type, id, payload }: Frame): TapRecord {
  if (type !== FrameType.event || payload.length < HEAD_BYTES) {
    throw new IpcFormatError(`frame of type ${type} where records come`);
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
  if (body.length !== 8) throw new IpcFormatError('a loss without a number');
  return viewOf(body).getFloat64(0, true);
}

function viewOf(octets: Uint8Array): DataView {
  return new DataView(octets.buffer, octets.byteOffset, octets.byteLength);
}
