/** The XDR of NFS and MOUNT: round trips, truncation at every byte, and maximum lengths. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { flat } from '#test/support/nfs-rig';
import type { Attributes3, WccData3 } from '#verbs-api/nfs/nfs3/attributes';
import { FileType, Nfs3Status, statusName } from '#verbs-api/nfs/nfs3/constants';
import { MOUNT3 } from '#verbs-api/nfs/nfs3/mount3-program';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import type { AnyProcedure } from '#verbs-api/rpcrdma/core/program';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

type NfsName = keyof (typeof NFS3)['procedures'];

const time = fc.record({ seconds: fc.nat(), nanoseconds: fc.nat(999_999_999) });
const uint32 = fc.nat(0xffff_ffff);
const uint64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const handle = fc.uint8Array({ minLength: 1, maxLength: 64 });
const eight = fc.uint8Array({ minLength: 8, maxLength: 8 });
const stable = fc.constantFrom(0 as const, 1 as const, 2 as const);
const attributes = fc.record({
  type: fc.constantFrom(...Object.values(FileType)),
  mode: fc.nat(0o7777),
  nlink: uint32,
  uid: uint32,
  gid: uint32,
  size: uint64,
  used: uint64,
  rdev: fc.tuple(uint32, uint32),
  fsid: uint64,
  fileid: uint64,
  atime: time,
  mtime: time,
  ctime: time,
});
const postOp = fc.option(attributes, { nil: undefined });
const before = fc.record({ size: uint64, mtime: time, ctime: time });
const wcc = fc.record({ before: fc.option(before, { nil: undefined }), after: postOp });
const setTime = fc.oneof(fc.constant('server' as const), time);
const setAttributes = fc.record(
  { mode: uint32, uid: uint32, gid: uint32, size: uint64, atime: setTime, mtime: setTime },
  { requiredKeys: [] },
);
const entry = fc.record({ directory: handle, name: bytes(300) });
const created = { object: fc.option(handle, { nil: undefined }), attributes: postOp, wcc };
const listed = { fileid: uint64, name: bytes(255), cookie: uint64 };
const listing = (fields: Fields) => {
  const entries = fc.array(fc.record({ ...listed, ...fields }), { maxLength: 5 });
  return query({ cookieVerifier: eight, eof: fc.boolean(), entries });
};
const ok = <T>(value: fc.Arbitrary<T>) => fc.record({ status: fc.constant(0), ok: value });
const fail = <T>(value: fc.Arbitrary<T>) =>
  fc.record({
    status: fc.constantFrom(...Object.values(Nfs3Status).filter((status) => status !== 0)),
    fail: value,
  });
type Fields = Readonly<Record<string, fc.Arbitrary<unknown>>>;
/** A result with the attributes of the object; a failure has nothing else. */
const query = (fields: Fields) =>
  fc.oneof(
    ok(fc.record({ attributes: postOp, ...fields })),
    fail(fc.record({ attributes: postOp })),
  );
/** A result with the attributes before and after a change; a failure has nothing else. */
const change = (fields: Fields) => fc.oneof(ok(fc.record(fields)), fail(fc.record({ wcc })));
const either = (fields: Fields) => fc.oneof(ok(fc.record(fields)), fail(fc.record(fields)));
const each = (value: fc.Arbitrary<unknown>, ...names: readonly string[]): Fields =>
  Object.fromEntries(names.map((name) => [name, value]));
const createHow = fc.oneof(
  fc.record({ mode: fc.constantFrom(0, 1), attributes: setAttributes }),
  fc.record({ mode: fc.constant(2), verifier: eight }),
);
const nodeOf = (device: fc.Arbitrary<unknown>, ...types: readonly number[]) =>
  fc.record({ where: entry, type: fc.constantFrom(...types), attributes: setAttributes, device });
const makeNode = fc.oneof(
  nodeOf(fc.tuple(uint32, uint32), FileType.chr, FileType.blk),
  nodeOf(fc.constant(undefined), FileType.sock, FileType.fifo),
);

/** Arguments and results of every procedure. */
const VALUES: Readonly<Record<NfsName, readonly [fc.Arbitrary<unknown>, fc.Arbitrary<unknown>]>> = {
  getattr: [handle, fc.oneof(ok(attributes), fail(fc.constant(undefined)))],
  setattr: [
    fc.record({
      object: handle,
      attributes: setAttributes,
      guardCtime: fc.option(time, { nil: undefined }),
    }),
    change({ wcc }),
  ],
  lookup: [entry, query({ object: handle, directoryAttributes: postOp })],
  access: [fc.record({ object: handle, access: uint32 }), query({ access: uint32 })],
  readlink: [handle, query({ path: bytes(400) })],
  read: [
    fc.record({ file: handle, offset: uint64, count: uint32 }),
    query({ eof: fc.boolean(), data: bytes(400) }),
  ],
  write: [
    fc.record({ file: handle, offset: uint64, stable, data: bytes(400) }),
    change({ wcc, count: uint32, committed: stable, verifier: eight }),
  ],
  create: [fc.record({ where: entry, how: createHow }), change(created)],
  mkdir: [fc.record({ where: entry, attributes: setAttributes }), change(created)],
  symlink: [
    fc.record({ where: entry, attributes: setAttributes, path: bytes(400) }),
    change(created),
  ],
  mknod: [makeNode, change(created)],
  remove: [entry, change({ wcc })],
  rmdir: [entry, change({ wcc })],
  rename: [fc.record({ from: entry, to: entry }), either({ fromWcc: wcc, toWcc: wcc })],
  link: [fc.record({ file: handle, link: entry }), either({ attributes: postOp, wcc })],
  readdir: [
    fc.record({ directory: handle, cookie: uint64, cookieVerifier: eight, count: uint32 }),
    listing({}),
  ],
  readdirplus: [
    fc.record({
      directory: handle,
      cookie: uint64,
      cookieVerifier: eight,
      ...each(uint32, 'dirCount', 'maxCount'),
    }),
    listing({ attributes: postOp, handle: fc.option(handle, { nil: undefined }) }),
  ],
  fsstat: [
    handle,
    query({
      ...each(uint64, 'totalBytes', 'freeBytes', 'availableBytes'),
      ...each(uint64, 'totalFiles', 'freeFiles', 'availableFiles'),
      invariantSeconds: uint32,
    }),
  ],
  fsinfo: [
    handle,
    query({
      ...each(uint32, 'readMax', 'readPreferred', 'readMultiple'),
      ...each(uint32, 'writeMax', 'writePreferred', 'writeMultiple'),
      ...each(uint32, 'directoryPreferred', 'properties'),
      fileSizeMax: uint64,
      timeGranularity: time,
    }),
  ],
  pathconf: [
    handle,
    query({
      ...each(uint32, 'linkMax', 'nameMax'),
      ...each(fc.boolean(), 'noTrunc', 'chownRestricted', 'caseInsensitive', 'casePreserving'),
    }),
  ],
  commit: [
    fc.record({ file: handle, offset: uint64, count: uint32 }),
    change({ wcc, verifier: eight }),
  ],
};

const NAMES = Object.keys(VALUES) as NfsName[];

function procedureOf(name: NfsName): AnyProcedure {
  return NFS3.procedures[name] as AnyProcedure;
}

describe.each(NAMES)('%s', (name) => {
  const { args, result } = procedureOf(name);
  const [argsValue, resultValue] = VALUES[name];

  it.each([
    ['arguments', args, argsValue],
    ['result', result, resultValue],
  ] as const)('%s are decoded unchanged, and refused if truncated', (_what, codec, arbitrary) => {
    fc.assert(
      fc.property(arbitrary, fc.nat(), (value, cut) => {
        const writer = new XdrWriter();
        codec.encode(writer, value);
        const encoded = flat(writer);
        expect(encoded.length % 4).toBe(0);
        const reader = new XdrReader(encoded);
        expect(codec.decode(reader)).toEqual(value);
        reader.finish();
        const shorter = encoded.subarray(0, cut % encoded.length);
        expect(() => codec.decode(new XdrReader(shorter))).toThrow(XdrError);
      }),
      { numRuns: 60 },
    );
  });

  it('random bytes are a value or an XdrError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (noise) => {
        for (const codec of [args, result]) {
          try {
            codec.decode(new XdrReader(noise));
          } catch (error) {
            expect(error).toBeInstanceOf(XdrError);
          }
        }
      }),
      { numRuns: 60 },
    );
  });
});

const FULL: Attributes3 = {
  type: FileType.reg,
  mode: 0o644,
  nlink: 1,
  uid: 0,
  gid: 0,
  size: 5000n,
  used: 8192n,
  rdev: [0, 0],
  fsid: 1n,
  fileid: 2n,
  atime: { seconds: 1, nanoseconds: 2 },
  mtime: { seconds: 1, nanoseconds: 2 },
  ctime: { seconds: 1, nanoseconds: 2 },
};
const FULL_WCC: WccData3 = {
  before: { size: 1n, mtime: FULL.mtime, ctime: FULL.ctime },
  after: FULL,
};

describe('the binding', () => {
  it('WRITE, SYMLINK, READ and READLINK have one item each [NFSR-8267.4-01, NFSR-5667.4-01]', () => {
    const may = (which: (procedure: AnyProcedure) => number) =>
      Object.values(NFS3.procedures as Record<string, AnyProcedure>)
        .filter((procedure) => which(procedure) > 0)
        .map(({ number }) => number);
    const readArgs = { file: new Uint8Array(32), offset: 0n, count: 4096 };
    expect(may(({ readChunksMax = 0 }) => readChunksMax)).toEqual([7, 10]);
    expect(may((procedure) => procedure.writeChunks?.(readArgs).length ?? 0)).toEqual([5, 6]);
    expect(NFS3.procedures.read.writeChunks?.(readArgs)).toEqual([4096]);
    expect(Object.keys(NFS3.procedures)).toHaveLength(21);
  });

  it('the program is that of NFS on any transport [NFSR-8166.9-01]', () => {
    expect(NFS3).toMatchObject({ number: 100003, version: 3 });
    expect(MOUNT3).toMatchObject({ number: 100005, version: 3 });
  });

  it('the largest result of every procedure fits the room that a client reserves [NFSR-8267.3-01]', () => {
    const largest = new Uint8Array(64).fill(1);
    const verifier = new Uint8Array(8);
    const ofObject = { attributes: FULL };
    const made = { object: largest, attributes: FULL, wcc: FULL_WCC };
    const both = { fromWcc: FULL_WCC, toWcc: FULL_WCC };
    const results: Readonly<Partial<Record<NfsName, unknown>>> = {
      getattr: FULL,
      setattr: { wcc: FULL_WCC },
      lookup: { object: largest, attributes: FULL, directoryAttributes: FULL },
      access: { ...ofObject, access: 63 },
      readlink: { ...ofObject, path: new Uint8Array(0) },
      read: { ...ofObject, eof: true, data: new Uint8Array(0) },
      write: { wcc: FULL_WCC, count: 1, committed: 2, verifier },
      create: made,
      mkdir: made,
      symlink: made,
      mknod: made,
      remove: { wcc: FULL_WCC },
      rmdir: { wcc: FULL_WCC },
      rename: both,
      link: { attributes: FULL, wcc: FULL_WCC },
      commit: { wcc: FULL_WCC, verifier },
    };
    for (const [name, value] of Object.entries(results)) {
      const { result, resultMaxBytes } = procedureOf(name as NfsName);
      const writer = new XdrWriter();
      result.encode(writer, { status: 0, ok: value });
      expect(flat(writer).length, name).toBe(resultMaxBytes({ count: 0 }));
    }
  });

  it('a reduced READ result takes 104 bytes, and 128 with the header of its reply [NFSR-1813.3-02]', () => {
    const writer = new XdrWriter();
    writer.limitBulk(1);
    const data = new Uint8Array(5000);
    NFS3.procedures.read.result.encode(writer, {
      status: 0,
      ok: { attributes: FULL, eof: false, data },
    });
    const { stream, items } = writer.payload();
    expect(stream.length + 24).toBe(128);
    expect(new DataView(stream.buffer, stream.byteOffset).getUint32(stream.length - 4)).toBe(5000);
    expect(items.map((item) => item.bytes)).toEqual([data]);
  });
});

describe('MOUNT', () => {
  it('returns a handle and flavors, or only a status', () => {
    const { result } = MOUNT3.procedures.mnt;
    for (const value of [
      { status: 0, handle: new Uint8Array(36), flavors: [1, 0] },
      { status: 13 },
    ] as const) {
      const writer = new XdrWriter();
      result.encode(writer, value);
      expect(result.decode(new XdrReader(flat(writer)))).toEqual(value);
    }
  });
});

describe('names of statuses', () => {
  it('are those of RFC 1813', () => {
    expect(statusName(Nfs3Status.ok)).toBe('NFS3_OK');
    expect(statusName(Nfs3Status.noent)).toBe('NFS3ERR_NOENT');
    expect(statusName(Nfs3Status.notSync)).toBe('NFS3ERR_NOT_SYNC');
    expect(statusName(Nfs3Status.badCookie)).toBe('NFS3ERR_BAD_COOKIE');
  });
});
