/**
 * A process that uses a host's emulated kernel as rdma-core does: the bytes of the shim, on connections to the
 * real server, without a socket.
 */
import { Role } from '#contract/protocol/ipc-frames';
import { CommandPace, type CommandShare } from '#daemon/clients/command-pace';
import type { ProgramConnection } from '#daemon/clients/connection';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { must } from '../rules.ts';
import type { PacketHost } from './packet-host.ts';

const HEADER_BYTES = 24;
const TOKEN_BYTES = 16;

interface KernelReply {
  readonly status: number;
  readonly response: Uint8Array;
}

/** The parts of a connection that the server needs from one without descriptors. */
type ServedConnection = Pick<
  ProgramConnection,
  'credentials' | 'closed' | 'onBytes' | 'onClosed' | 'serve' | 'write' | 'cut'
>;

/** Enters a connection at the server; `token` opens a file or names one. Returns the token of its file. */
function enter(
  connection: Omit<ServedConnection, 'serve'>,
  host: PacketHost,
  role: number,
  token: Uint8Array,
): Uint8Array {
  const welcome = host.kernel.enter(connection as unknown as ProgramConnection, role, token);
  welcome?.ready();
  return welcome?.token ?? token;
}

/** Makes the credentials of a process of this user. */
export function processOf(uid: number, identity: string): PeerProcess {
  const openDescriptor = (): never => {
    throw new Error('a simulated process has no descriptor');
  };
  return { pid: 0, uid, gid: uid, identity, openDescriptor };
}

export class KernelConnection implements ServedConnection {
  readonly credentials: PeerProcess;
  /** Identifies the file to the process's other connections. */
  readonly token: Uint8Array;
  closed = false;
  onBytes: (bytes: Uint8Array) => void = () => undefined;
  onClosed: (reason: string | undefined) => void = () => undefined;
  /** A request has been carried out. */
  onAnswer: () => void = () => undefined;
  /** Answers that were not taken, oldest first. */
  readonly replies: KernelReply[] = [];
  readonly #share: CommandShare;
  #asked = 0;
  #answered = 0;

  /** Opens a file. `deviceIndex`: the device, for a file of uverbs. */
  constructor(
    host: PacketHost,
    role: number,
    parts: {
      readonly credentials: PeerProcess;
      readonly share: CommandShare;
      readonly deviceIndex?: number;
    },
  ) {
    const { credentials, share, deviceIndex = -1 } = parts;
    this.credentials = credentials;
    this.#share = share;
    const token = new Uint8Array(TOKEN_BYTES);
    token[0] = deviceIndex + 1;
    this.token = enter(this, host, role, token);
  }

  serve(carryOut: (bytes: Uint8Array, more: () => boolean) => number): void {
    const pace = new CommandPace(this, this.#share, carryOut);
    this.onBytes = (bytes) => pace.receive(bytes);
  }

  // The program reads and writes no faster than the server.
  pause(): void {}
  resume(): void {}
  keep(): void {}

  write(bytes: Uint8Array): void {
    const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#answered += 1;
    must(fields.getUint32(8, true) === this.#answered, 'order', 'answers of the kernel');
    const response = bytes.subarray(HEADER_BYTES, HEADER_BYTES + fields.getUint32(16, true));
    must(!this.closed, 'events', 'an answer to a process that is gone');
    this.onAnswer();
    this.replies.push({ status: fields.getInt32(4, true), response });
  }

  cut(reason: string): void {
    must(false, 'refused', () => `a file of the kernel is cut off: ${reason}`);
  }

  /** Writes commands to the file at once, without waiting for answers. */
  send(commands: readonly Uint8Array[]): void {
    this.onBytes(Buffer.concat(commands.map((payload) => this.#frame(payload))));
  }

  /** Writes a command, which is answered in this turn. */
  call(payload: Uint8Array): KernelReply {
    this.send([payload]);
    const reply = this.replies.shift();
    must(reply !== undefined && this.replies.length === 0, 'once', 'no answer of the kernel');
    return reply;
  }

  /** Writes a command that must succeed. Returns its response. */
  must(payload: Uint8Array): DataView {
    const { status, response } = this.call(payload);
    must(status >= 0, 'refused', () => `a command of the kernel: ${status}`);
    return new DataView(response.buffer, response.byteOffset, response.length);
  }

  close(): void {
    this.closed = true;
    this.onClosed(undefined);
  }

  #frame(payload: Uint8Array): Uint8Array {
    const bytes = new Uint8Array(HEADER_BYTES + payload.length);
    const fields = new DataView(bytes.buffer);
    this.#asked += 1;
    fields.setUint32(0, bytes.length, true);
    fields.setUint16(4, ShimOp.write, true);
    fields.setUint32(12, this.#asked, true);
    bytes.set(payload, HEADER_BYTES);
    return bytes;
  }
}

/** The visible descriptor of a file of rdma_cm: readable when events wait. */
export class EventDescriptor implements Omit<ServedConnection, 'serve'> {
  readonly credentials: PeerProcess;
  closed = false;
  onBytes = (): void => undefined;
  onClosed: (reason: string | undefined) => void = () => undefined;
  /** Set by the server, cleared by the program once it has taken every event. */
  readable = false;

  constructor(host: PacketHost, { credentials, token }: KernelConnection) {
    this.credentials = credentials;
    enter(this, host, Role.event, token);
  }

  write(): void {
    this.readable = true;
  }

  cut(reason: string): void {
    must(false, 'refused', () => `an event descriptor is cut off: ${reason}`);
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.onClosed(undefined);
  }
}
