/**
 * The installed libibverbs and librdmacm: loaded once, checked to be new enough, with their calls
 * as functions. Pointers are numbers (user addresses are below 2^53), NULL is 0.
 */
import { readFileSync } from 'node:fs';
import koffi, { type LibraryHandle } from 'koffi';
import { lastErrno } from '../libc/libc.ts';
import { callFailure, NativeError } from './errors.ts';

/** A call that can also run on libuv's threads, so the event loop continues. */
type Blocking<F> = F & { readonly async: (...parameters: unknown[]) => void };

type Call = (...parameters: (number | bigint | string)[]) => number;

/** Prototypes by name. All calls must exist. */
const VERBS_CALLS = {
  ibv_get_device_list: 'uint64_t ibv_get_device_list(uint64_t count)',
  ibv_free_device_list: 'void ibv_free_device_list(uint64_t list)',
  ibv_get_device_guid: 'uint64_t ibv_get_device_guid(uint64_t device)',
  ibv_open_device: 'uint64_t ibv_open_device(uint64_t device)',
  ibv_close_device: 'int ibv_close_device(uint64_t context)',
  ibv_query_device: 'int ibv_query_device(uint64_t context, uint64_t attributes)',
  ibv_query_port: 'int ibv_query_port(uint64_t context, uint8_t port, uint64_t attributes)',
  ibv_query_gid: 'int ibv_query_gid(uint64_t context, uint8_t port, int index, uint64_t gid)',
  ibv_get_async_event: 'int ibv_get_async_event(uint64_t context, uint64_t event)',
  ibv_ack_async_event: 'void ibv_ack_async_event(uint64_t event)',
  ibv_alloc_pd: 'uint64_t ibv_alloc_pd(uint64_t context)',
  ibv_dealloc_pd: 'int ibv_dealloc_pd(uint64_t pd)',
  ibv_reg_mr_iova:
    'uint64_t ibv_reg_mr_iova(uint64_t pd, uint64_t address, uint64_t length, uint64_t iova, int access)',
  ibv_dereg_mr: 'int ibv_dereg_mr(uint64_t mr)',
  ibv_create_comp_channel: 'uint64_t ibv_create_comp_channel(uint64_t context)',
  ibv_destroy_comp_channel: 'int ibv_destroy_comp_channel(uint64_t channel)',
  ibv_create_cq:
    'uint64_t ibv_create_cq(uint64_t context, int cqe, uint64_t cq_context, uint64_t channel, int vector)',
  ibv_destroy_cq: 'int ibv_destroy_cq(uint64_t cq)',
  ibv_get_cq_event: 'int ibv_get_cq_event(uint64_t channel, uint64_t cq, uint64_t cq_context)',
  ibv_ack_cq_events: 'void ibv_ack_cq_events(uint64_t cq, unsigned int count)',
  ibv_create_srq: 'uint64_t ibv_create_srq(uint64_t pd, uint64_t init)',
  ibv_modify_srq: 'int ibv_modify_srq(uint64_t srq, uint64_t attributes, int mask)',
  ibv_query_srq: 'int ibv_query_srq(uint64_t srq, uint64_t attributes)',
  ibv_destroy_srq: 'int ibv_destroy_srq(uint64_t srq)',
  ibv_create_qp: 'uint64_t ibv_create_qp(uint64_t pd, uint64_t init)',
  ibv_modify_qp: 'int ibv_modify_qp(uint64_t qp, uint64_t attributes, int mask)',
  ibv_query_qp: 'int ibv_query_qp(uint64_t qp, uint64_t attributes, int mask, uint64_t init)',
  ibv_destroy_qp: 'int ibv_destroy_qp(uint64_t qp)',
} as const;

const CM_CALLS = {
  rdma_create_event_channel: 'uint64_t rdma_create_event_channel()',
  rdma_destroy_event_channel: 'void rdma_destroy_event_channel(uint64_t channel)',
  rdma_create_id: 'int rdma_create_id(uint64_t channel, uint64_t id, uint64_t context, int space)',
  rdma_destroy_id: 'int rdma_destroy_id(uint64_t id)',
  rdma_bind_addr: 'int rdma_bind_addr(uint64_t id, uint64_t address)',
  rdma_resolve_addr:
    'int rdma_resolve_addr(uint64_t id, uint64_t source, uint64_t destination, int timeout)',
  rdma_resolve_route: 'int rdma_resolve_route(uint64_t id, int timeout)',
  rdma_listen: 'int rdma_listen(uint64_t id, int backlog)',
  rdma_connect: 'int rdma_connect(uint64_t id, uint64_t parameters)',
  rdma_accept: 'int rdma_accept(uint64_t id, uint64_t parameters)',
  rdma_reject: 'int rdma_reject(uint64_t id, uint64_t data, uint8_t length)',
  rdma_disconnect: 'int rdma_disconnect(uint64_t id)',
  rdma_init_qp_attr: 'int rdma_init_qp_attr(uint64_t id, uint64_t attributes, uint64_t mask)',
  rdma_get_cm_event: 'int rdma_get_cm_event(uint64_t channel, uint64_t event)',
  rdma_ack_cm_event: 'int rdma_ack_cm_event(uint64_t event)',
} as const;

/** The calls of libibverbs that are not inline. */
export type VerbsCalls = Readonly<Record<keyof typeof VERBS_CALLS, Blocking<Call>>>;
export type CmCalls = Readonly<Record<keyof typeof CM_CALLS, Blocking<Call>>>;

export interface Libraries {
  readonly verbs: VerbsCalls;
  readonly cm: CmCalls;
  /** Files and, if the file's name contains them, versions ('1.14.44.0'), for messages. */
  readonly verbsFile: LibraryFile;
  readonly cmFile: LibraryFile;
}

export interface LibraryFile {
  readonly path: string;
  readonly version: string | undefined;
}

/** Names of the libraries to load, for tests and for unusual installations. */
export interface LibraryOptions {
  /** Default 'libibverbs.so.1'. */
  readonly verbs?: string;
  /** Default 'librdmacm.so.1'. */
  readonly cm?: string;
}

const loaded = new Map<string, Libraries>();

/**
 * Loads the libraries, or returns those loaded before. They stay loaded. Throws `NativeError`:
 * `libraryMissing` (ENODEV) with the loader's error; `libraryTooOld` (ENOSYS) with the library and
 * the missing call.
 */
export function openLibraries(options: LibraryOptions = {}): Libraries {
  const verbsName = options.verbs ?? 'libibverbs.so.1';
  const cmName = options.cm ?? 'librdmacm.so.1';
  const key = `${verbsName}\n${cmName}`;
  const known = loaded.get(key);
  if (known !== undefined) return known;
  const libraries: Libraries = {
    verbs: bind(VERBS_CALLS, loadLibrary(verbsName), verbsName),
    cm: bind(CM_CALLS, loadLibrary(cmName), cmName),
    verbsFile: fileOf(verbsName),
    cmFile: fileOf(cmName),
  };
  loaded.set(key, libraries);
  return libraries;
}

function loadLibrary(name: string): LibraryHandle {
  try {
    return koffi.load(name);
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    throw new NativeError('libraryMissing', 'ENODEV', `${name} cannot be loaded: ${cause}`);
  }
}

function bind<K extends string>(
  prototypes: Readonly<Record<K, string>>,
  library: LibraryHandle,
  name: string,
): Record<K, Blocking<Call>> {
  const calls: Partial<Record<K, Blocking<Call>>> = {};
  for (const call of Object.keys(prototypes) as K[]) {
    try {
      calls[call] = library.func(prototypes[call]) as Blocking<Call>;
    } catch {
      const { version } = fileOf(name);
      throw new NativeError(
        'libraryTooOld',
        'ENOSYS',
        `${name}${version === undefined ? '' : ` ${version}`} has no ${call}: too old`,
      );
    }
  }
  return calls as Record<K, Blocking<Call>>;
}

/** The file that the loader chose for a name, according to this process's memory map. */
function fileOf(name: string): LibraryFile {
  const stem = name.slice(name.lastIndexOf('/') + 1).replace(/\.so.*$/, '');
  const line = readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .find((entry) => entry.includes(`/${stem}.so`));
  const path = line?.slice(line.indexOf('/')) ?? name;
  return { path, version: /\.so\.(\d+(?:\.\d+)+)$/.exec(path)?.[1] };
}

/** The error in errno, of a call that failed. */
export function lastFailure(call: string, subject: string): NativeError {
  return callFailure(call, subject, lastErrno());
}

/** Throws the error in errno unless `result` is 0: for calls that return -1 and set errno. */
export function checkErrno(call: string, subject: string, result: number): void {
  if (result !== 0) throw lastFailure(call, subject);
}

/** Throws unless `result` is 0: for calls that return an errno number, of either sign. */
export function checkResult(call: string, subject: string, result: number): void {
  if (result !== 0) throw callFailure(call, subject, result);
}

/** Calls that may occupy libuv's four threads at once; file and name operations need some, too. */
const BLOCKING_CALLS_MAX = 2;
let blockingCalls = 0;
const waitingCalls: (() => void)[] = [];

/** Runs a call on one of libuv's threads, in turn. Resolves with its result. */
export async function callBlocking(call: Blocking<Call>, ...parameters: number[]): Promise<number> {
  if (blockingCalls < BLOCKING_CALLS_MAX) blockingCalls += 1;
  else await new Promise<void>((resolve) => waitingCalls.push(resolve));
  try {
    return await new Promise<number>((resolve, reject) => {
      call.async(...parameters, (error: unknown, result: number) => {
        if (error === null || error === undefined) resolve(result);
        else reject(error);
      });
    });
  } finally {
    // The next waiter takes over the slot.
    const next = waitingCalls.shift();
    if (next === undefined) blockingCalls -= 1;
    else next();
  }
}
