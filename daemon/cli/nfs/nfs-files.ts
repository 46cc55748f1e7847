/** `iwarpd nfs ls`, `cat` and `put`: files of a server. */
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isVerbsError } from '#contract/verbs/errors';
import {
  CommandFailure,
  failureCode,
  failureText,
  fileFailureText,
  untilAborted,
  usageFailure,
} from '#daemon/console/failure';
import { type Output, printJson, tableLines } from '#daemon/console/output';
import {
  type ByteSource,
  MountError,
  NfsClient,
  NfsError,
  type RemoteEntry,
} from '#verbs-api/nfs/client/nfs-client';
import type { Attributes3 } from '#verbs-api/nfs/nfs3/attributes';
import { FileType, Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { wireOptions } from '../arguments.ts';
import { type NfsProviderArguments, openNfsProvider } from './nfs-provider.ts';

export interface NfsFileArguments extends NfsProviderArguments {
  readonly port: number;
  readonly mountPort?: number;
  readonly json?: boolean;
  /** ls: one line for each file, with its attributes. */
  readonly long?: boolean;
  /** ls: include names that start with a dot. */
  readonly all?: boolean;
}

const TYPE_NAMES: Readonly<Record<FileType, string>> = {
  [FileType.reg]: 'file',
  [FileType.dir]: 'directory',
  [FileType.lnk]: 'link',
  [FileType.blk]: 'block device',
  [FileType.chr]: 'character device',
  [FileType.sock]: 'socket',
  [FileType.fifo]: 'fifo',
};
const TYPE_LETTERS = '?-dbclsp';
const NANOSECONDS_PER_MILLISECOND = 1e6;
/** Time to clean up after Ctrl-C: long enough to remove a file, short for a waiting user. */
const CLEAN_UP_MS = 2000;

/** Lists a directory, or one file. CommandFailure. */
export async function runNfsList(
  text: string,
  given: NfsFileArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const remote = parseRemotePath(text);
  const entries = await withClient(remote, given, output, signal, async (client) => {
    const file = await client.find(remote.path);
    const own = { name: Buffer.from(remote.path), attributes: file.attributes };
    if (file.attributes.type !== FileType.dir) return [own];
    const found: RemoteEntry[] = [];
    for await (const entry of client.list(file, remote.path)) found.push(entry);
    return found.filter(({ name }) => given.all === true || name[0] !== 0x2e);
  });
  entries.sort((a, b) => Buffer.compare(a.name, b.name));
  if (given.json === true) printJson(output, { entries: entries.map(entryJson) });
  else if (given.long === true) for (const line of longLines(entries)) output.line(line);
  else for (const { name } of entries) output.line(shownName(name));
}

/** Writes files to standard output, one after the other. CommandFailure. */
export async function runNfsCat(
  texts: readonly string[],
  given: NfsFileArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  for (const remote of texts.map(parseRemotePath)) {
    await withClient(remote, given, output, signal, async (client) => {
      const file = await client.find(remote.path);
      for await (const bytes of client.read(file, remote.path)) {
        await writeOut(bytes);
      }
    });
  }
}

/** Copies a local file, or standard input (`-`), to a server. CommandFailure. */
export async function runNfsPut(
  local: string,
  text: string,
  given: NfsFileArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const remote = parseRemotePath(text);
  const started = performance.now();
  await using source = await openLocal(local);
  const read = untilInterrupted(source.read, signal);
  const result = await withClient(remote, given, output, signal, async (client) => {
    const path = await targetPath(client, remote.path, local);
    return { path, bytes: await client.replace(path, read) };
  });
  if (given.json !== true) return;
  const seconds = (performance.now() - started) / 1000;
  printJson(output, { path: result.path, bytes: Number(result.bytes), seconds });
}

/** The target; in a directory, the file keeps its name. */
async function targetPath(client: NfsClient, path: string, local: string): Promise<string> {
  const name = basename(local);
  try {
    const { attributes } = await client.find(path);
    if (attributes.type !== FileType.dir) return path;
    if (local === '-') throw new CommandFailure(`${path} is a directory; give the file a name`);
    return `${path.replace(/\/+$/, '')}/${name}`;
  } catch (error) {
    if (error instanceof NfsError && error.status === Nfs3Status.noent) return path;
    throw error;
  }
}

interface LocalSource extends AsyncDisposable {
  readonly read: ByteSource;
}

async function openLocal(path: string): Promise<LocalSource> {
  if (path === '-') return standardInput();
  try {
    const file = await open(path, 'r');
    if ((await file.stat()).isDirectory()) {
      await file.close();
      throw new CommandFailure('is a directory; name a file');
    }
    return {
      read: async (target) => (await file.read(target, 0, target.length)).bytesRead,
      [Symbol.asyncDispose]: () => file.close(),
    };
  } catch (error) {
    throw new CommandFailure(`cannot read ${path}: ${fileFailureText(error)}`, { cause: error });
  }
}

function standardInput(): LocalSource {
  const pieces: AsyncIterator<Buffer> = process.stdin[Symbol.asyncIterator]();
  let left: Buffer = Buffer.alloc(0);
  return {
    async read(target) {
      if (left.length === 0) {
        const next = await pieces.next();
        if (next.done === true) return 0;
        left = next.value;
      }
      const count = left.copy(target);
      left = left.subarray(count);
      return count;
    },
    async [Symbol.asyncDispose]() {
      process.stdin.destroy();
    },
  };
}

async function withClient<T>(
  remote: RemotePath,
  given: NfsFileArguments,
  output: Output,
  signal: AbortSignal,
  work: (client: NfsClient) => Promise<T>,
): Promise<T> {
  const provider = await openNfsProvider(given, output);
  try {
    const { port, mountPort } = given;
    const wire = wireOptions(given);
    const connecting = NfsClient.connect(provider, {
      host: remote.host,
      port,
      ...(mountPort === undefined ? {} : { mountPort }),
      ...(wire === undefined ? {} : { wire }),
    });
    await using client = await untilAborted(connecting, signal);
    return await untilCleanedUp(work(client), signal);
  } catch (error) {
    if (signal.aborted) throw error;
    throw failureOf(error, remote, given);
  } finally {
    await provider.close();
  }
}

/** `read`, but fails as soon as `signal` fires: the client then removes the incomplete file. */
function untilInterrupted(read: ByteSource, signal: AbortSignal): ByteSource {
  return (target) => untilAborted(read(target), signal);
}

/** Settles as `work` does; after `signal` fires, `work` has some time to clean up. */
async function untilCleanedUp<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await untilAborted(work, signal);
  } catch (error) {
    if (signal.aborted) {
      const late = sleep(CLEAN_UP_MS, undefined, { ref: false });
      await Promise.race([late, work.catch(() => undefined)]);
    }
    throw error;
  }
}

function failureOf(error: unknown, remote: RemotePath, given: NfsFileArguments): unknown {
  if (error instanceof CommandFailure) return error;
  const options = { cause: error };
  if (error instanceof NfsError) {
    return new CommandFailure(`${remote.host}:${failureText(error)}`, options);
  }
  if (error instanceof MountError) {
    const fix =
      "check the server's exports; a Linux server accepts this client only with the export option `insecure`";
    return new CommandFailure(`${remote.host}: ${error.message}; ${fix}`, options);
  }
  const code = failureCode(error);
  if (isVerbsError(error) && code === 'ECONNREFUSED') {
    const text = `no NFS over RDMA server at ${remote.host} port ${given.port} (--port)`;
    return new CommandFailure(`${text}: ${failureText(error)}`, options);
  }
  if (code === 'ECONNREFUSED' || code === 'ETIMEDOUT') {
    const text = `no MOUNT server at ${remote.host} (--mount-port)`;
    return new CommandFailure(`${text}: ${failureText(error)}`, options);
  }
  return new CommandFailure(`${remotePathText(remote)}: ${failureText(error)}`, options);
}

async function writeOut(bytes: Uint8Array): Promise<void> {
  // The bytes are reused once this resolves, so wait until the stream has written them.
  await new Promise<void>((resolve, reject) => {
    process.stdout.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

/** A name as text, with control characters shown as question marks. */
function shownName(name: Uint8Array): string {
  return Buffer.from(name)
    .toString()
    .replace(/\p{Cc}/gu, '?');
}

function modeText({ type, mode }: Attributes3): string {
  const bits = [...'rwxrwxrwx'].map((letter, at) => ((mode >> (8 - at)) & 1 ? letter : '-'));
  const special = (at: number, bit: number, lower: string) => {
    if ((mode & bit) !== 0) bits[at] = bits[at] === 'x' ? lower : lower.toUpperCase();
  };
  special(2, 0o4000, 's');
  special(5, 0o2000, 's');
  special(8, 0o1000, 't');
  return (TYPE_LETTERS[type] ?? '?') + bits.join('');
}

function timeText({ seconds, nanoseconds }: Attributes3['mtime']): string {
  return new Date(seconds * 1000 + nanoseconds / NANOSECONDS_PER_MILLISECOND).toISOString();
}

function longLines(entries: readonly RemoteEntry[]): string[] {
  return tableLines(
    entries.map(({ name, attributes }) => {
      if (attributes === undefined) return ['?', '?', '?', '?', '?', '?', shownName(name)];
      const { nlink, uid, gid, size } = attributes;
      const numbers = [nlink, uid, gid, size].map(String);
      return [modeText(attributes), ...numbers, timeText(attributes.mtime), shownName(name)];
    }),
  );
}

function entryJson({ name, attributes }: RemoteEntry) {
  const text = Buffer.from(name).toString();
  if (attributes === undefined) return { name: text };
  const { type, mode, nlink, uid, gid, size, fileid, mtime } = attributes;
  return {
    name: text,
    type: TYPE_NAMES[type],
    mode: mode.toString(8).padStart(4, '0'),
    nlink,
    uid,
    gid,
    size: Number(size),
    fileid: fileid.toString(),
    mtime: timeText(mtime),
  };
}

interface RemotePath {
  readonly host: string;
  /** From the root of the server; starts with a slash. */
  readonly path: string;
}

/** Parses `HOST:/PATH`; an IPv6 address is in brackets. Throws a usage failure for anything else. */
export function parseRemotePath(text: string): RemotePath {
  const [, bracketed, plain, path] = /^(?:\[([^\]]+)\]|([^:/]+)):(\/.*)$/s.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || path === undefined || path.includes('\0')) {
    throw usageFailure(
      `${text} is not HOST:PATH; PATH starts with a slash, for example 127.0.0.1:/file`,
    );
  }
  return { host, path };
}

function remotePathText({ host, path }: RemotePath): string {
  return host.includes(':') ? `[${host}]:${path}` : `${host}:${path}`;
}
