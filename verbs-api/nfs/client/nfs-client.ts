/** A client of NFS over RDMA: finds files by path, lists, reads and writes them. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Provider, WireOptions } from '#contract/verbs/provider';
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import type { ArgsOf, ResultOf } from '#verbs-api/rpcrdma/core/program';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import type { RpcClient } from '#verbs-api/rpcrdma/rpc-client-types';
import type { Attributes3 } from '../nfs3/attributes.ts';
import {
  CreateMode,
  FileType,
  MOUNT_PORT,
  MOUNT_PROGRAM,
  MOUNT_VERSION,
  MountStatus,
  mountStatusName,
  type Nfs3Error,
  Nfs3Status,
  StableHow,
  statusName,
  VERIFIER_BYTES,
} from '../nfs3/constants.ts';
import type { ListedEntryPlus } from '../nfs3/directory-procedures.ts';
import { MOUNT3 } from '../nfs3/mount3-program.ts';
import { NFS3 } from '../nfs3/nfs3-program.ts';
import type { Outcome3 } from '../nfs3/outcome.ts';
import { findTcpPort } from '../tcp/port-mapper.ts';
import { TcpRpcClient } from '../tcp/tcp-rpc-client.ts';

/** The server rejected an operation on `path`. */
export class NfsError extends Error {
  override readonly name = 'NfsError';
  readonly status: Nfs3Error;

  constructor(status: Nfs3Error, path: string, note?: string) {
    super(`${path}: ${note ?? textOfStatus(status)} (${statusName(status)})`);
    this.status = status;
  }
}

export class MountError extends Error {
  override readonly name = 'MountError';
  readonly status: MountStatus;

  constructor(status: MountStatus, path: string) {
    super(`${path} is not exported to this host (${mountStatusName(status)})`);
    this.status = status;
  }
}

interface NfsClientOptions {
  readonly host: string;
  /** NFS over RDMA port. */
  readonly port: number;
  /** TCP port of MOUNT. Default: from the host's port mapper, else the usual one. */
  readonly mountPort?: number;
  readonly wire?: WireOptions;
}

export interface RemoteFile {
  readonly handle: Uint8Array;
  readonly attributes: Attributes3;
}

export interface RemoteEntry {
  readonly name: Uint8Array;
  readonly attributes: Attributes3 | undefined;
}

/** Fills `target` with bytes to write and returns how many; 0 at the end. */
export type ByteSource = (target: Uint8Array) => Promise<number>;

/**
 * Concurrent transfers, each with its own memory. A transfer passes through four processes twice;
 * with fewer, processors wait for one another.
 */
const DEPTH = 8;
const TRANSFER_MAX_BYTES = 1 << 20;
const LISTING_BYTES = 32_768;
const NEW_FILE_MODE = 0o644;
const GIDS_MAX = 16;

type Procedures = (typeof NFS3)['procedures'];
type OkOf<R> = R extends { readonly status: 0; readonly ok: infer O } ? O : never;

export function ownCredential(): Credential {
  return {
    flavor: 'sys',
    stamp: (Date.now() / 1000) >>> 0,
    machineName: hostname(),
    uid: process.geteuid?.() ?? 0,
    gid: process.getegid?.() ?? 0,
    gids: (process.getgroups?.() ?? []).slice(0, GIDS_MAX),
  };
}

/** Paths are absolute paths on the server. */
export class NfsClient implements AsyncDisposable {
  readonly #rpc: RpcClient;
  readonly #options: NfsClientOptions;
  readonly #credential: Credential;
  readonly #buffers: Promise<Uint8Array>[] = [];

  private constructor(rpc: RpcClient, options: NfsClientOptions, credential: Credential) {
    this.#rpc = rpc;
    this.#options = options;
    this.#credential = credential;
  }

  /** Connects. Rejects like `connectRpc`. */
  static async connect(provider: Provider, options: NfsClientOptions): Promise<NfsClient> {
    const credential = ownCredential();
    const { host, port, wire } = options;
    const rpc = await connectRpc(provider, {
      host,
      port,
      credential,
      ...(wire === undefined ? {} : { wire }),
    });
    return new NfsClient(rpc, options, credential);
  }

  close(): Promise<void> {
    return this.#rpc.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Calls a procedure; `path` is for the message of the `NfsError` if the server rejects it. */
  async call<K extends keyof Procedures & string>(
    procedure: K,
    args: ArgsOf<Procedures[K]>,
    path: string,
    bulkInto?: readonly Uint8Array[],
  ): Promise<OkOf<ResultOf<Procedures[K]>>> {
    const options = bulkInto === undefined ? {} : { bulkInto };
    const result = await this.#rpc.call(NFS3, procedure, args, options);
    const outcome = result as Outcome3<OkOf<ResultOf<Procedures[K]>>, unknown>;
    if (outcome.status !== Nfs3Status.ok) throw new NfsError(outcome.status, path);
    return outcome.ok;
  }

  /** The file at `path`. `NfsError`, or `MountError` if no export contains it. */
  async find(path: string): Promise<RemoteFile> {
    const { root, rest } = await this.#mount(path);
    let handle = root;
    let attributes = await this.call('getattr', handle, path);
    for (const part of rest.split('/')) {
      if (part === '' || part === '.') continue;
      if (attributes.type === FileType.lnk) throw linkError(path);
      const name = Buffer.from(part);
      const found = await this.call('lookup', { directory: handle, name }, path);
      handle = Uint8Array.from(found.object);
      attributes = found.attributes ?? (await this.call('getattr', handle, path));
    }
    return { handle, attributes };
  }

  /** The names in a directory except `.` and `..`, in the server's order. */
  async *list(directory: RemoteFile, path: string): AsyncGenerator<RemoteEntry> {
    let cookie = 0n;
    let cookieVerifier: Uint8Array = new Uint8Array(VERIFIER_BYTES);
    for (;;) {
      const page = await this.call(
        'readdirplus',
        {
          directory: directory.handle,
          cookie,
          cookieVerifier,
          dirCount: LISTING_BYTES,
          maxCount: LISTING_BYTES,
        },
        path,
      );
      for (const entry of page.entries) {
        cookie = entry.cookie;
        const name = Uint8Array.from(entry.name);
        const text = Buffer.from(name).toString('latin1');
        if (text === '.' || text === '..') continue;
        yield { name, attributes: await this.#attributesOf(directory, entry, name, path) };
      }
      if (page.eof) return;
      if (page.entries.length === 0) throw new NfsError(Nfs3Status.toosmall, path);
      cookieVerifier = Uint8Array.from(page.cookieVerifier);
    }
  }

  /** The bytes of a file, in order; each piece is valid until the next one is requested. */
  async *read(file: RemoteFile, path: string): AsyncGenerator<Uint8Array> {
    if (file.attributes.type === FileType.lnk) throw linkError(path);
    const sizeBytes = await this.#transferBytes(file, path, 'readMax');
    // One read per piece of the file, and one that finds its end.
    const pieces = file.attributes.size / BigInt(sizeBytes) + 1n;
    const buffers = await this.#transferBuffers(pieces < DEPTH ? Number(pieces) : DEPTH);
    const fetch = (offset: bigint, into: Uint8Array) => {
      const args = { file: file.handle, offset, count: into.length };
      const reading = this.call('read', args, path, [into]);
      // A caller that stops early does not await it.
      reading.catch(() => undefined);
      return reading;
    };
    const fetches = buffers.map((buffer) => buffer.subarray(0, sizeBytes));
    let next = 0n;
    const ahead = fetches.map((into) => {
      const piece = { offset: next, into, reading: fetch(next, into) };
      next += BigInt(sizeBytes);
      return piece;
    });
    for (;;) {
      const piece = ahead.shift();
      if (piece === undefined) return;
      let { data, eof } = await piece.reading;
      yield data;
      // A short read: fetch the rest before the pieces already requested after it.
      let got = data.length;
      while (!eof && got < piece.into.length) {
        const rest = piece.into.subarray(0, piece.into.length - got);
        ({ data, eof } = await fetch(piece.offset + BigInt(got), rest));
        if (data.length === 0 && !eof) throw new NfsError(Nfs3Status.io, path, 'no bytes came');
        got += data.length;
        yield data;
      }
      if (eof) {
        await Promise.allSettled(ahead.map(({ reading }) => reading));
        return;
      }
      ahead.push({ offset: next, into: piece.into, reading: fetch(next, piece.into) });
      next += BigInt(sizeBytes);
    }
  }

  /**
   * Creates or truncates the file at `path` and writes it; resolves once it is in stable storage.
   * Returns the bytes written.
   */
  async write(path: string, source: ByteSource): Promise<bigint> {
    const { directory, name } = await this.#parentOf(path);
    const where = { directory: directory.handle, name };
    const how = { mode: CreateMode.unchecked, attributes: { mode: NEW_FILE_MODE, size: 0n } };
    const created = await this.call('create', { where, how }, path);
    const object = created.object ?? (await this.call('lookup', where, path)).object;
    const handle = Uint8Array.from(object);
    const attributes = created.attributes ?? (await this.call('getattr', handle, path));
    return await this.#fill({ handle, attributes }, path, source);
  }

  /**
   * Writes to a temporary name next to `path`, then renames it. Until then, and if `source` or the
   * server fails, `path` is unchanged and no other file remains. A replaced file keeps its mode.
   * Returns the bytes written.
   */
  async replace(path: string, source: ByteSource): Promise<bigint> {
    const { directory, name } = await this.#parentOf(path);
    const mode = await this.#modeToKeep(path);
    const temporary = Buffer.from(`.iwarpd-put-${randomBytes(8).toString('hex')}`);
    const where = { directory: directory.handle, name: temporary };
    const how = { mode: CreateMode.guarded, attributes: { mode } };
    const created = await this.call('create', { where, how }, path);
    try {
      const object = created.object ?? (await this.call('lookup', where, path)).object;
      const handle = Uint8Array.from(object);
      const attributes = created.attributes ?? (await this.call('getattr', handle, path));
      const bytes = await this.#fill({ handle, attributes }, path, source);
      await this.call('rename', { from: where, to: { directory: directory.handle, name } }, path);
      return bytes;
    } catch (error) {
      await this.call('remove', where, path).catch(() => undefined);
      throw error;
    }
  }

  /**
   * The mode of the regular file at `path`, or the default for a new one. `NfsError` for another type.
   */
  async #modeToKeep(path: string): Promise<number> {
    try {
      const { attributes } = await this.find(path);
      if (attributes.type === FileType.reg) return attributes.mode;
      throw new NfsError(Nfs3Status.inval, path, 'it is not a regular file');
    } catch (error) {
      if (error instanceof NfsError && error.status === Nfs3Status.noent) return NEW_FILE_MODE;
      throw error;
    }
  }

  async #fill(file: RemoteFile, path: string, source: ByteSource): Promise<bigint> {
    const buffers = await this.#transferBuffers(DEPTH);
    const sizeBytes = await this.#transferBytes(file, path, 'writeMax');
    const verifiers = new Set<string>();
    const free = buffers.map((buffer) => buffer.subarray(0, sizeBytes));
    const writing = new Set<Promise<void>>();
    let offset = 0n;
    let failure: unknown;
    const send = async (buffer: Uint8Array, at: bigint, count: number): Promise<void> => {
      try {
        await this.#writeAll(file, path, buffer.subarray(0, count), at, verifiers);
      } catch (error) {
        failure ??= error;
      } finally {
        free.push(buffer);
      }
    };
    const giveUp = (error: unknown): number => {
      failure ??= error;
      return 0;
    };
    for (;;) {
      const buffer = free.pop();
      if (buffer === undefined) {
        await Promise.race(writing);
        continue;
      }
      const count = failure === undefined ? await source(buffer).catch(giveUp) : 0;
      if (count === 0) break;
      const sending: Promise<void> = send(buffer, offset, count).then(() => {
        writing.delete(sending);
      });
      writing.add(sending);
      offset += BigInt(count);
    }
    await Promise.all(writing);
    if (failure !== undefined) throw failure;
    const committed = await this.call('commit', { file: file.handle, offset: 0n, count: 0 }, path);
    verifiers.add(Buffer.from(committed.verifier).toString('hex'));
    if (verifiers.size > 1) {
      throw new NfsError(
        Nfs3Status.io,
        path,
        'the server restarted and lost data; repeat the command',
      );
    }
    return offset;
  }

  async #writeAll(
    file: RemoteFile,
    path: string,
    bytes: Uint8Array,
    offset: bigint,
    verifiers: Set<string>,
  ): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const args = {
        file: file.handle,
        offset: offset + BigInt(done),
        stable: StableHow.unstable,
        data: bytes.subarray(done),
      };
      const written = await this.call('write', args, path);
      if (written.count === 0) throw new NfsError(Nfs3Status.io, path, 'no bytes were taken');
      done += written.count;
      verifiers.add(Buffer.from(written.verifier).toString('hex'));
    }
  }

  async #attributesOf(
    directory: RemoteFile,
    entry: ListedEntryPlus,
    name: Uint8Array,
    path: string,
  ): Promise<Attributes3 | undefined> {
    if (entry.attributes !== undefined) return entry.attributes;
    try {
      const where = { directory: directory.handle, name };
      return (await this.call('lookup', where, path)).attributes;
    } catch (error) {
      // Removed meanwhile, or not accessible.
      if (error instanceof NfsError) return undefined;
      throw error;
    }
  }

  async #parentOf(path: string): Promise<{ directory: RemoteFile; name: Uint8Array }> {
    const trimmed = path.replace(/\/+$/, '');
    const slash = trimmed.lastIndexOf('/');
    const directory = await this.find(slash <= 0 ? '/' : trimmed.slice(0, slash));
    return { directory, name: Buffer.from(trimmed.slice(slash + 1)) };
  }

  /** The root of the export that contains `path`, and the rest of the path within it. */
  async #mount(path: string): Promise<{ root: Uint8Array; rest: string }> {
    const { host } = this.#options;
    const mountProgram = { program: MOUNT_PROGRAM, version: MOUNT_VERSION };
    const port = this.#options.mountPort ?? (await findTcpPort(host, mountProgram)) ?? MOUNT_PORT;
    await using mount = await TcpRpcClient.connect(host, port, this.#credential);
    const exported = await mount.call(MOUNT3, 'exports', undefined);
    const paths = exported.map((entry) => Buffer.from(entry.path).toString());
    const holds = (each: string) => each === '/' || path === each || path.startsWith(`${each}/`);
    const [best = path] = paths.filter(holds).sort((a, b) => b.length - a.length);
    const mounted = await mount.call(MOUNT3, 'mnt', Buffer.from(best));
    if (mounted.status !== MountStatus.ok) throw new MountError(mounted.status, path);
    return { root: Uint8Array.from(mounted.handle), rest: path.slice(best.length) };
  }

  /** The memory of the first `count` transfers, allocated on first use. */
  async #transferBuffers(count: number): Promise<readonly Uint8Array[]> {
    while (this.#buffers.length < count) {
      this.#buffers.push(this.#rpc.allocate(TRANSFER_MAX_BYTES));
    }
    return await Promise.all(this.#buffers.slice(0, count));
  }

  /** Bytes per transfer: the server's preference, up to our limit. */
  async #transferBytes(
    file: RemoteFile,
    path: string,
    limit: 'readMax' | 'writeMax',
  ): Promise<number> {
    const limits = await this.call('fsinfo', file.handle, path);
    return Math.max(1, Math.min(limits[limit], TRANSFER_MAX_BYTES));
  }
}

function linkError(path: string): NfsError {
  return new NfsError(Nfs3Status.inval, path, 'a symbolic link, which is not followed');
}

const STATUS_TEXTS: Partial<Record<Nfs3Error, string>> = {
  [Nfs3Status.perm]: 'not the owner',
  [Nfs3Status.noent]: 'no such file or directory',
  [Nfs3Status.io]: 'the server has an input/output error',
  [Nfs3Status.acces]: 'permission denied',
  [Nfs3Status.exist]: 'exists and is not a regular file',
  [Nfs3Status.notdir]: 'not a directory',
  [Nfs3Status.isdir]: 'is a directory',
  [Nfs3Status.inval]: 'not a regular file, or a name that the server does not take',
  [Nfs3Status.fbig]: 'file too large for the server',
  [Nfs3Status.nospc]: 'no space is left on the server',
  [Nfs3Status.rofs]: 'the server is read-only',
  [Nfs3Status.nametoolong]: 'name too long',
  [Nfs3Status.dquot]: 'the quota on the server is exceeded',
  [Nfs3Status.stale]: 'removed in the meantime',
  [Nfs3Status.notsupp]: 'not supported by the server',
  [Nfs3Status.jukebox]: 'the server is busy, try again later',
};

function textOfStatus(status: Nfs3Error): string {
  return STATUS_TEXTS[status] ?? 'refused by the server';
}
