/** An NFS server over a test's private folder, called without any transport. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Attributes3 } from '#verbs-api/nfs/nfs3/attributes';
import { MountStatus, Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { MOUNT3 } from '#verbs-api/nfs/nfs3/mount3-program';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import type { DirectoryFiles } from '#verbs-api/nfs/server/directory-reader';
import { DIRECT_CALLS, type FileCalls, THREAD_CALLS } from '#verbs-api/nfs/server/file-calls';
import { nfsServices } from '#verbs-api/nfs/server/nfs-server';
import { type ExportOptions, ServedExport } from '#verbs-api/nfs/server/served-export';
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import type { ArgsOf, ResultOf } from '#verbs-api/rpcrdma/core/program';
import {
  emitCredential,
  NO_AUTH,
  readReplyHeader,
  writeCallHeader,
} from '#verbs-api/rpcrdma/core/rpc-message';
import { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { emitPayload, XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import type { RpcService } from '#verbs-api/rpcrdma/rpc-service';

/** User 0 of some host. */
export const SUPERUSER: Credential = sysCredential(0);

/** The ways in which servers reach files, with their names. */
export const WAYS = [
  ['at once', DIRECT_CALLS],
  ['on threads', THREAD_CALLS],
] as const;

/** A user of some host, in a group of the same number. */
export function sysCredential(uid: number, gids: readonly number[] = []): Credential {
  return { flavor: 'sys', stamp: 1, machineName: 'test', uid, gid: uid, gids };
}

export function name(text: string): Uint8Array {
  return Buffer.from(text, 'latin1');
}

type Procedures = (typeof NFS3)['procedures'];

interface RigCall {
  readonly credential?: Credential;
  readonly xid?: number;
  readonly address?: string;
}

/** See the module's comment. `outside` is beside the export, with a canary in it. */
export class NfsRig {
  readonly folder = mkdtempSync(join(tmpdir(), 'iwarpd-nfs-'));
  readonly path = join(this.folder, 'export');
  readonly outside = join(this.folder, 'outside');
  readonly served: ServedExport;
  readonly failures: unknown[] = [];
  readonly service: RpcService;
  #xid = 1;

  constructor(options: ExportOptions = {}, files?: DirectoryFiles, calls?: FileCalls) {
    mkdirSync(this.path);
    mkdirSync(this.outside);
    writeFileSync(join(this.outside, 'canary'), 'canary');
    this.served = new ServedExport(this.path, { squashRoot: false, ...options }, files, calls);
    this.service = nfsServices(this.served, {
      handlerFailed: (_program, _procedure, error) => void this.failures.push(error),
    }).rdma;
  }

  file(relative: string): string {
    return join(this.path, relative);
  }

  async call<K extends keyof Procedures & string>(
    procedure: K,
    args: ArgsOf<Procedures[K]>,
    options: RigCall = {},
  ): Promise<ResultOf<Procedures[K]>> {
    const { number, args: argsCodec, result } = NFS3.procedures[procedure];
    const encode = argsCodec.encode as (writer: XdrWriter, value: unknown) => void;
    const reader = await this.#send(NFS3, number, (writer) => encode(writer, args), options);
    const value = result.decode(reader);
    reader.finish();
    return value as ResultOf<Procedures[K]>;
  }

  /** The handle of the export, or of a directory in it. */
  async mount(path = '/'): Promise<Uint8Array> {
    const { number, args, result } = MOUNT3.procedures.mnt;
    const encode = (writer: XdrWriter) => args.encode(writer, name(path));
    const mounted = result.decode(await this.#send(MOUNT3, number, encode, {}));
    if (mounted.status !== MountStatus.ok) throw new Error(`MNT says ${mounted.status}`);
    return mounted.handle;
  }

  /** MNT's answer to a path. */
  async mountStatus(path: string): Promise<number> {
    const { number, args, result } = MOUNT3.procedures.mnt;
    const encode = (writer: XdrWriter) => args.encode(writer, name(path));
    return result.decode(await this.#send(MOUNT3, number, encode, {})).status;
  }

  /** The handle of a file, by names from the root. */
  async handle(...names: readonly string[]): Promise<Uint8Array> {
    let handle = await this.mount();
    for (const each of names) {
      const found = await this.call('lookup', { directory: handle, name: name(each) });
      if (found.status !== Nfs3Status.ok) throw new Error(`LOOKUP ${each} says ${found.status}`);
      handle = found.ok.object;
    }
    return handle;
  }

  /** The attributes of a file, by names from the root. */
  async attributes(...names: readonly string[]): Promise<Attributes3> {
    const found = await this.call('getattr', await this.handle(...names));
    if (found.status !== Nfs3Status.ok) throw new Error(`GETATTR says ${found.status}`);
    return found.ok;
  }

  /** Closes the export and removes its folder. */
  clean(): void {
    this.served.close();
    // Node's own removal fails on paths that are too long.
    execFileSync('rm', ['-rf', this.folder]);
  }

  /** The reply to a call with arbitrary bytes as arguments: outcome and results. */
  async answer(
    program: { readonly number: number; readonly version: number },
    procedure: number,
    args: (writer: XdrWriter) => void,
    options: RigCall = {},
  ) {
    const writer = new XdrWriter();
    const xid = options.xid ?? this.#xid++;
    writeCallHeader(writer, {
      xid,
      program: program.number,
      version: program.version,
      procedure,
      credential: emitCredential(options.credential ?? SUPERUSER),
      verifier: NO_AUTH,
    });
    args(writer);
    const reply = new XdrWriter();
    const caller = {
      address: options.address ?? '127.0.0.1',
      bulkBuffer: async (lengthBytes: number) => new Uint8Array(lengthBytes),
    };
    await this.service.answer(new XdrReader(flat(writer)), reply, caller);
    const reader = new XdrReader(flat(reply));
    return { outcome: readReplyHeader(reader).outcome, reader };
  }

  async #send(
    program: { readonly number: number; readonly version: number },
    procedure: number,
    args: (writer: XdrWriter) => void,
    options: RigCall,
  ): Promise<XdrReader> {
    const { outcome, reader } = await this.answer(program, procedure, args, options);
    if (outcome.status !== 'success') {
      throw new Error(`the call ended with ${outcome.status}: ${this.failures.at(-1)}`);
    }
    return reader;
  }
}

/** The written bytes, with all bulk items in the stream. */
export function flat(writer: XdrWriter): Uint8Array {
  const payload = writer.payload();
  const bytes = new Uint8Array(payload.lengthBytes);
  emitPayload(payload, bytes, 0);
  return bytes;
}
