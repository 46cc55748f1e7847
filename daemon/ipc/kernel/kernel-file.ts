/**
 * What the kernel server and the files that it serves need of each other. A file is one open of a
 * device node (or one netlink socket); its connections are the descriptor, copies of which children
 * inherit, and further command connections. It lives until all of them are closed.
 *
 * To serve another kind of file: implement `KernelFile` and enter its maker in `kernel-files.ts`.
 */
import type { PeerCredentials } from '../../../native-bridge/libc/unix-socket.ts';
import { ERRNO, type ErrnoCode } from '../../../verbs-api/contract/errors.ts';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import type { QP } from '../../rnic/queue-pair.ts';
import type { AnyQueue, EventQueue } from './event-queue.ts';
import type { KernelClient } from './kernel-client.ts';
import type { MemoryUser, ProcessMemories } from './process-memories.ts';
import type { ShimReply, ShimRequest } from './shim-protocol.ts';

/** Kinds of files. */
export type KernelFileKind = 'uverbs' | 'rdmaCm' | 'netlink';

/** Who sent a request. */
export interface KernelCaller {
  /** The process at the other end of the connection, as the kernel knows it. */
  readonly credentials: PeerCredentials;
  /** False when the request claims another pid than the connection's process has. */
  readonly ownPid: boolean;
}

/** The outcome of a command. */
export interface KernelReply extends ShimReply {
  /**
   * Sends a descriptor along (SCM_RIGHTS): `send` is to be called once, within the call, with the
   * descriptor, which stays the caller's.
   */
  readonly attach?: (send: (descriptor: number) => void) => void;
}

/** One open of a device node, or one netlink socket. */
export interface KernelFile extends MemoryUser {
  readonly kind: KernelFileKind;
  /** Names the file in requests (and the descriptor of `ownQueue` in its welcome). */
  readonly number: number;
  readonly client: KernelClient;
  /**
   * The event queue whose descriptor greets with the file's own token (the visible descriptor of
   * rdma_cm), if the kind has one.
   */
  readonly ownQueue: AnyQueue | undefined;
  /**
   * Executes a request. A refusal is a thrown `VerbsError` (nothing was done) or a negative status;
   * effects on NIC objects are drained before it returns. A request that breaks the protocol throws
   * `IpcFormatError` and ends the file.
   */
  execute(request: ShimRequest, caller: KernelCaller): KernelReply;
  /** Last close: destroys everything in dependency order. Called once. */
  close(): void;
}

/** What a file is made with. */
export interface KernelFileParts {
  /** Names the file to connections that join it. */
  readonly token: Uint8Array;
  /** Names the file (and the descriptor of `ownQueue`) in requests. */
  readonly number: number;
  /** The process that opened it, its quotas and accounts. */
  readonly client: KernelClient;
  readonly services: KernelServices;
  /** For uverbs: which device of the host was opened. */
  readonly deviceIndex: number;
}

/** What the server does for its files. */
export interface KernelServices {
  readonly host: RnicHost;
  readonly memories: ProcessMemories;
  /** A new event queue with a token and a number of its own, until `queue.end()`. */
  createQueue<T, Owner>(client: KernelClient): EventQueue<T, Owner>;
  /** Another file by its number, for who may use it (same user). */
  findFile(number: number, client: KernelClient): KernelFile | undefined;
  /**
   * The queue pair that a program of the same user made on a device, as rdma_cm's CONNECT and
   * ACCEPT name it. Undefined when there is none.
   */
  findQP(deviceName: string, qpn: number, client: KernelClient): QP | undefined;
}

/** Makes the file of an open. Throws `VerbsError` when the open is refused. */
export type KernelFileMaker = (parts: KernelFileParts) => KernelFile;

/** A refusal. */
export function refusal(code: ErrnoCode): KernelReply {
  return { status: -ERRNO[code].number };
}

/** Success without a response. */
export const DONE: KernelReply = { status: 0 };
