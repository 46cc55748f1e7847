/**
 * The interface between the kernel server and its files. A file is one open of a device node (or
 * one netlink socket); its connections are the descriptor, which children inherit, and further
 * command connections. It lives until all of them are closed.
 *
 * To serve another kind of file: implement `KernelFile` and add its maker to `kernel-files.ts`.
 */
import type { RefusalApi } from '#contract/protocol/refusals';
import { ERRNO, type ErrnoCode } from '#contract/verbs/errors';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { QP } from '#daemon/rnic/queue-pair';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import type { DeviceResources, ListedId } from '../clients/objects/device-resources.ts';
import type { EventRouter } from '../clients/objects/event-router.ts';
import type { NumberedList } from '../clients/objects/numbered-list.ts';
import type { AnyQueue, EventQueue } from './event-queue.ts';
import type { KernelClient } from './kernel-client.ts';
import type { Linger } from './linger.ts';
import type { MemoryFile, ProcessMemories } from './process-memories.ts';
import type { ShimReply, ShimRequest } from './shim-protocol.ts';

export type KernelFileKind = 'uverbs' | 'rdmaCm' | 'netlink';

export interface KernelCaller {
  /** The process at the other end of the connection, as reported by the kernel. */
  readonly credentials: PeerProcess;
  /** False if the request claims a pid other than that of the connection's process. */
  readonly ownPid: boolean;
  /** False in a child forked from the process that opened the file. */
  readonly isOpener: boolean;
}

export interface RefusedCall {
  readonly api: RefusalApi;
  /** The call with the spelling of C: 'ibv_modify_qp'. */
  readonly verb: string;
  readonly step?: string | undefined;
  readonly device?: string | undefined;
  readonly objects?: Readonly<Record<string, number>> | undefined;
}

export interface KernelReply extends ShimReply {
  readonly refused?: { readonly code: ErrnoCode; readonly sentence: string };
  /**
   * Sends a descriptor along (SCM_RIGHTS): call `send` once, within the call, with the descriptor,
   * which stays the caller's.
   */
  readonly attach?: (send: (descriptor: number) => void) => void;
}

/** One open of a device node, or one netlink socket. */
export interface KernelFile extends MemoryFile {
  readonly kind: KernelFileKind;
  /** Identifies the file in requests (and the descriptor of `ownQueue` in its welcome). */
  readonly number: number;
  readonly client: KernelClient;
  /**
   * The event queue whose descriptor greets with the file's own token (the visible descriptor of
   * rdma_cm), if the kind has one.
   */
  readonly ownQueue: AnyQueue | undefined;
  /**
   * Executes a request. A refused request throws `VerbsError` (nothing was done) or returns a
   * negative status; effects on NIC objects are drained before it returns. A request that breaks
   * the protocol throws `IpcFormatError` and ends the file.
   */
  execute(request: ShimRequest, caller: KernelCaller): KernelReply;
  describe(request: ShimRequest): RefusedCall;
  /**
   * Last close: destroys everything in dependency order, up to about `costMax` objects' worth of work in
   * each call. Returns the work done: less than `costMax` when nothing is left.
   */
  close(costMax: number): number;
}

export interface KernelFileParts {
  /** Identifies the file to connections that join it. */
  readonly token: Uint8Array;
  /** Identifies the file (and the descriptor of `ownQueue`) in requests. */
  readonly number: number;
  /** The process that opened it, with its quotas and accounts. */
  readonly client: KernelClient;
  readonly services: KernelServices;
  /** For uverbs: index of the opened device in the host. */
  readonly deviceIndex: number;
}

export interface KernelServices {
  readonly host: RnicHost;
  readonly events: EventRouter;
  readonly memories: ProcessMemories;
  readonly linger: Linger;
  /** A new event queue with its own token and number, which it keeps until `queue.end()`. */
  createQueue<T, Owner>(client: KernelClient): EventQueue<T, Owner>;
  /** Another file of the same user, by number. */
  findFile(number: number, client: KernelClient): KernelFile | undefined;
  /**
   * The queue pair that a program of the same user created on this device of the host, as rdma_cm's
   * CONNECT and ACCEPT name it. Undefined if there is none.
   */
  findQP(deviceIndex: number, qpn: number, client: KernelClient): QP | undefined;
  /** The objects of all clients on a device of the host. */
  resources(deviceIndex: number): DeviceResources;
  readonly ids: NumberedList<ListedId>;
}

/** Creates the file of an open. Throws `VerbsError` if the open is refused. */
export type KernelFileMaker = (parts: KernelFileParts) => KernelFile;

export function refusal(code: ErrnoCode, sentence: string): KernelReply {
  return { status: -ERRNO[code].number, refused: { code, sentence } };
}

export const DONE: KernelReply = { status: 0 };
