/**
 * The frames between a client and the daemon, and the greeting that opens each connection.
 *
 * Every connection starts with one `hello` frame and its answer, one `welcome` frame, both fixed
 * structs. What follows depends on the role: `control` and `admin` continue with frames; `doorbell`,
 * `channel`, `map` and `agent` carry bare records (`ipc-records.ts`). All numbers are little
 * endian, as in the queues.
 *
 * ```
 *  frame header   u32 payload bytes | u8 type | u8[3] zero | u32 request id (0: none)
 *  hello          u32 magic | u16 version | u8 role | u8 zero | u8[16] token
 *  welcome        u32 magic | u16 version | u16 zero | u32 errno | u32 pid | u8[16] token | text
 * ```
 *
 * The token of a hello is zero for `control` and `admin`. For `doorbell`, `map` and `agent` it is the
 * client's token, from the welcome of its control connection; for `channel` the channel's, from the
 * reply of createCompChannel. Connections of the preload shim are described in
 * `daemon/kernel/shim-protocol.ts`. Their token is the device's index plus 1 as u32 for a uverbs
 * device, zero for rdma_cm and netlink; the text of their welcome is the number of the file or event
 * queue.
 *
 * A welcome with an errno other than 0 has the reason in its text; then the connection ends.
 */
import { RecordReader } from './ipc-records.ts';
import { decodeText, encodeText, encodeValue, IpcFormatError, type IpcValue } from './ipc-value.ts';

/**
 * Version of this protocol and of the preload library's. Both sides must have the same one.
 * Since 2, the rings of a device are one file, and operation 2 asks for it. Since 3, the rings of a
 * client are parts of few files, too. Since 4, a device sends the reasons of failed work. Since 5, programs
 * arm the queues of RoCE devices in their rings.
 */
export const IPC_VERSION = 5;
/** 'iwrd' */
const IPC_MAGIC = 0x64_72_77_69;

export const FRAME_HEADER_BYTES = 12;
/** The largest payload of a frame that a client may send; private data is the longest. */
export const CLIENT_FRAME_MAX_BYTES = 64 * 1024;
/** The largest payload of a frame that the daemon may send: a status with many clients. */
export const DAEMON_FRAME_MAX_BYTES = 4 * 1024 * 1024;
export const TOKEN_BYTES = 16;
/** Bytes of a hello's payload. */
export const HELLO_BYTES = 24;
/**
 * Limit for the peer's greeting. Long, since a machine that starts dozens of jobs at once is slow; the end
 * of a process is noticed at once in any case.
 */
export const GREETING_TIMEOUT_MS = 60_000;
/** Bytes of a welcome's payload before its text. */
const WELCOME_BYTES = 32;

export const FrameType = {
  hello: 1,
  welcome: 2,
  /** Client: value `[command, request]`. */
  request: 3,
  /** Daemon: the reply's value. */
  reply: 4,
  /** Daemon: value `[errno name, text]`. */
  error: 5,
  /** Daemon: value of a `DeviceEvent`. */
  event: 6,
} as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];

/** Purpose of a connection. */
export const Role = {
  control: 1,
  doorbell: 2,
  channel: 3,
  map: 4,
  agent: 5,
  /** Operations on the daemon, without a client. */
  admin: 6,
  /** Preload library: one open of a uverbs device, and further connections to that open. */
  uverbs: 7,
  /** Preload library: one open of rdma_cm, and further connections to that open. */
  rdmaCm: 8,
  /** Preload library: a netlink socket. */
  netlink: 9,
  /** Preload library: a descriptor that becomes readable when events wait. */
  event: 10,
  /** Watches traffic on the daemon's connections (`tap-records.ts`). */
  tap: 11,
} as const;
export type Role = (typeof Role)[keyof typeof Role];

/** A frame: `payload` borrows from the reader's input until the callback returns. */
export interface IpcFrame {
  readonly type: number;
  readonly id: number;
  readonly payload: Uint8Array;
}

/** The bytes of a frame. */
export function emitFrame(type: FrameType, id: number, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(FRAME_HEADER_BYTES + payload.length);
  writeFrameHeader(bytes, type, id);
  bytes.set(payload, FRAME_HEADER_BYTES);
  return bytes;
}

/** The bytes of a frame that carries a value. Throws RangeError as `encodeValue` does. */
export function emitValueFrame(type: FrameType, id: number, value: IpcValue): Uint8Array {
  const bytes = encodeValue(value, FRAME_HEADER_BYTES);
  writeFrameHeader(bytes, type, id);
  return bytes;
}

/** Writes the header of the frame that fills `bytes`. */
export function writeFrameHeader(bytes: Uint8Array, type: FrameType, id: number): void {
  const fields = new DataView(bytes.buffer, bytes.byteOffset, FRAME_HEADER_BYTES);
  fields.setUint32(0, bytes.length - FRAME_HEADER_BYTES, true);
  fields.setUint8(4, type);
  fields.setUint32(8, id, true);
}

/** A reader keeps a buffer of this size for fragmented frames; larger ones are released. */
const KEPT_MAX_BYTES = 128 * 1024;

/**
 * Splits a stream of bytes into frames, however the stream is fragmented. After an `IpcFormatError` the
 * stream cannot be read further.
 */
export class IpcFrameReader extends RecordReader {
  /** `payloadMaxBytes`: a longer frame is refused as soon as its header has arrived. */
  constructor(payloadMaxBytes: number, onFrame: (frame: IpcFrame) => void) {
    const bytesOf = (head: Uint8Array): number => {
      const payloadBytes = headerOf(head).getUint32(0, true);
      if (payloadBytes <= payloadMaxBytes) return payloadBytes;
      throw new IpcFormatError(`frame of ${payloadBytes} bytes, over ${payloadMaxBytes}`);
    };
    const deliver = (frame: Uint8Array): void => {
      const fields = headerOf(frame);
      const payload = frame.subarray(FRAME_HEADER_BYTES);
      onFrame({ type: fields.getUint8(4), id: fields.getUint32(8, true), payload });
    };
    super(FRAME_HEADER_BYTES, bytesOf, deliver, KEPT_MAX_BYTES);
  }
}

function headerOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, FRAME_HEADER_BYTES);
}

/** The greeting of a client. */
export interface Hello {
  readonly version: number;
  readonly role: number;
  readonly token: Uint8Array;
}

/** The frame of a hello. `token` has `TOKEN_BYTES` bytes; zeros by default. */
export function emitHello(role: Role, token: Uint8Array = new Uint8Array(TOKEN_BYTES)): Uint8Array {
  const payload = new Uint8Array(HELLO_BYTES);
  const fields = new DataView(payload.buffer);
  fields.setUint32(0, IPC_MAGIC, true);
  fields.setUint16(4, IPC_VERSION, true);
  fields.setUint8(6, role);
  payload.set(token, 8);
  return emitFrame(FrameType.hello, 0, payload);
}

/** Parses the payload of a hello. Throws `IpcFormatError`; the caller checks the version. */
export function parseHello(frame: IpcFrame): Hello {
  const { payload } = frame;
  if (frame.type !== FrameType.hello || payload.length !== HELLO_BYTES) {
    throw new IpcFormatError('no greeting');
  }
  const fields = new DataView(payload.buffer, payload.byteOffset, payload.length);
  if (fields.getUint32(0, true) !== IPC_MAGIC) throw new IpcFormatError('not an iwarpd greeting');
  return {
    version: fields.getUint16(4, true),
    role: fields.getUint8(6),
    token: payload.slice(8, 8 + TOKEN_BYTES),
  };
}

/** The daemon's answer to a hello. */
export interface Welcome {
  readonly version: number;
  /** 0, or the errno number of the refusal. */
  readonly errno: number;
  readonly daemonPid: number;
  readonly token: Uint8Array;
  /** Why it was refused; otherwise empty, or a number for the preload library. */
  readonly text: string;
}

export function emitWelcome(welcome: Omit<Welcome, 'version'>): Uint8Array {
  const text = encodeText(welcome.text);
  const payload = new Uint8Array(WELCOME_BYTES + text.length);
  const fields = new DataView(payload.buffer);
  fields.setUint32(0, IPC_MAGIC, true);
  fields.setUint16(4, IPC_VERSION, true);
  fields.setUint32(8, welcome.errno, true);
  fields.setUint32(12, welcome.daemonPid, true);
  payload.set(welcome.token, 16);
  payload.set(text, WELCOME_BYTES);
  return emitFrame(FrameType.welcome, 0, payload);
}

/** Parses a welcome. Throws `IpcFormatError`. */
export function parseWelcome(frame: IpcFrame): Welcome {
  const { payload } = frame;
  if (frame.type !== FrameType.welcome || payload.length < WELCOME_BYTES) {
    throw new IpcFormatError('no answer to the greeting');
  }
  const fields = new DataView(payload.buffer, payload.byteOffset, payload.length);
  if (fields.getUint32(0, true) !== IPC_MAGIC) throw new IpcFormatError('not an iwarpd daemon');
  return {
    version: fields.getUint16(4, true),
    errno: fields.getUint32(8, true),
    daemonPid: fields.getUint32(12, true),
    token: payload.slice(16, 16 + TOKEN_BYTES),
    text: decodeText(payload.subarray(WELCOME_BYTES)),
  };
}

/** A token as text: 32 hex digits. */
export function tokenText(token: Uint8Array): string {
  let text = '';
  for (const byte of token) text += byte.toString(16).padStart(2, '0');
  return text;
}

/** Parses a token from its text. Throws `IpcFormatError`. */
export function parseTokenText(text: string): Uint8Array {
  if (!/^[0-9a-f]{32}$/.test(text)) throw new IpcFormatError('no token');
  const token = new Uint8Array(TOKEN_BYTES);
  for (let i = 0; i < TOKEN_BYTES; i++)
    token[i] = Number.parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return token;
}
