import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NfsRig, name, SUPERUSER, sysCredential, WAYS } from '#test/support/nfs-rig';
import {
  Access3,
  CreateMode,
  FileType,
  Nfs3Status,
  StableHow,
} from '#verbs-api/nfs/nfs3/constants';

const { dataSync, fileSync, unstable } = StableHow;

let rig: NfsRig;
let root: Uint8Array;

describe.each(WAYS)('with system calls made %s', (_way, calls) => {
  beforeEach(async () => {
    rig = new NfsRig({}, undefined, calls);
    root = await rig.mount();
  });

  afterEach(() => rig.clean());

  const UNCHECKED = { mode: CreateMode.unchecked, attributes: { mode: 0o644 } } as const;
  const GUARDED = { mode: CreateMode.guarded, attributes: { mode: 0o600 } } as const;

  async function create(
    text: string,
    how: Parameters<typeof createArgs>[1] = UNCHECKED,
    xid?: number,
  ) {
    return await rig.call('create', createArgs(text, how), xid === undefined ? {} : { xid });
  }

  function createArgs(
    text: string,
    how: typeof UNCHECKED | typeof GUARDED | { mode: 2; verifier: Uint8Array },
  ) {
    return { where: { directory: root, name: name(text) }, how };
  }

  describe('attributes', () => {
    it('returns the attributes that the system reports', async () => {
      writeFileSync(rig.file('a'), 'twelve bytes');
      chmodSync(rig.file('a'), 0o4751);
      const stats = lstatSync(rig.file('a'), { bigint: true });
      const attributes = await rig.attributes('a');
      expect(attributes).toMatchObject({
        type: FileType.reg,
        mode: 0o4751,
        nlink: 1,
        size: 12n,
        fileid: stats.ino,
        fsid: stats.dev,
      });
      const { seconds, nanoseconds } = attributes.mtime;
      expect(BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds)).toBe(stats.mtimeNs);
    });

    it('sets size, mode and times to the nanosecond, and keeps the rest', async () => {
      writeFileSync(rig.file('a'), 'twelve bytes');
      const object = await rig.handle('a');
      const before = await rig.attributes('a');
      const outcome = await rig.call('setattr', {
        object,
        attributes: {
          mode: 0o640,
          size: 5n,
          mtime: { seconds: 1234567890, nanoseconds: 987654321 },
        },
        guardCtime: before.ctime,
      });
      expect(outcome.status).toBe(Nfs3Status.ok);
      const after = await rig.attributes('a');
      expect(after).toMatchObject({ mode: 0o640, size: 5n, atime: before.atime });
      expect(after.mtime).toEqual({ seconds: 1234567890, nanoseconds: 987654321 });
      expect(readFileSync(rig.file('a'), 'utf8')).toBe('twelv');
    });

    it('does nothing when the guard time differs', async () => {
      writeFileSync(rig.file('a'), 'twelve bytes');
      const object = await rig.handle('a');
      const attributes = { size: 0n };
      const guardCtime = { seconds: 1, nanoseconds: 0 };
      const outcome = await rig.call('setattr', { object, attributes, guardCtime });
      expect(outcome.status).toBe(Nfs3Status.notSync);
      expect(statSync(rig.file('a')).size).toBe(12);
    });

    it('changes a link itself, never its target', async () => {
      symlinkSync(`${rig.outside}/canary`, rig.file('link'));
      const object = await rig.handle('link');
      const before = statSync(`${rig.outside}/canary`);
      const times = { seconds: 1000, nanoseconds: 0 };
      for (const attributes of [{ mode: 0o777 }, { size: 0n }, { mtime: times, atime: times }]) {
        await rig.call('setattr', { object, attributes, guardCtime: undefined });
      }
      expect(statSync(`${rig.outside}/canary`)).toMatchObject({
        mode: before.mode,
        size: before.size,
        mtimeMs: before.mtimeMs,
      });
      expect(lstatSync(rig.file('link')).mtimeMs).toBe(1_000_000);
    });
  });

  describe('reading and writing', () => {
    it('writes at an offset and reads back, and reports the end of the file', async () => {
      const created = await create('f');
      if (created.status !== Nfs3Status.ok || created.ok.object === undefined)
        throw new Error('no file');
      const file = created.ok.object;
      const data = Buffer.from('over the wire');
      const written = await rig.call('write', { file, offset: 3n, stable: fileSync, data });
      expect(written).toMatchObject({
        status: Nfs3Status.ok,
        ok: { count: data.length, committed: fileSync },
      });
      const whole = await rig.call('read', { file, offset: 0n, count: 4096 });
      if (whole.status !== Nfs3Status.ok) throw new Error('not read');
      expect(Buffer.from(whole.ok.data).toString('latin1')).toBe('\0\0\0over the wire');
      expect(whole.ok.eof).toBe(true);
      const part = await rig.call('read', { file, offset: 3n, count: 4 });
      expect(part).toMatchObject({ status: Nfs3Status.ok, ok: { eof: false } });
      const pastEnd = await rig.call('read', { file, offset: 2n ** 63n, count: 4 });
      expect(pastEnd).toMatchObject({
        status: Nfs3Status.ok,
        ok: { eof: true, data: new Uint8Array(0) },
      });
    });

    it('returns wcc data for a write that ran alone', async () => {
      writeFileSync(rig.file('f'), 'abc');
      const file = await rig.handle('f');
      const data = Buffer.from('defg');
      const written = await rig.call('write', { file, offset: 3n, stable: unstable, data });
      if (written.status !== Nfs3Status.ok) throw new Error('not written');
      expect(written.ok.wcc.before?.size).toBe(3n);
      expect(written.ok.wcc.after?.size).toBe(7n);
      const committed = await rig.call('commit', { file, offset: 0n, count: 0 });
      if (committed.status !== Nfs3Status.ok) throw new Error('not committed');
      expect(committed.ok.verifier).toEqual(written.ok.verifier);
    });

    it('returns no pre-operation data for concurrent writes', async () => {
      writeFileSync(rig.file('f'), '');
      const file = await rig.handle('f');
      const writes = [0n, 4n, 8n].map((offset) =>
        rig.call('write', { file, offset, stable: dataSync, data: Buffer.from('1234') }),
      );
      for (const written of await Promise.all(writes)) {
        if (written.status !== Nfs3Status.ok) throw new Error('not written');
        expect(written.ok.wcc.before).toBeUndefined();
      }
      expect(readFileSync(rig.file('f'), 'utf8')).toBe('123412341234');
    });

    it('allows the owner to fill a file created read-only, and to read one without rights', async () => {
      const created = await create('f', {
        mode: CreateMode.unchecked,
        attributes: { mode: 0o444 },
      } as never);
      expect(created.status).toBe(Nfs3Status.ok);
      const file = await rig.handle('f');
      const data = Buffer.from('filled');
      const credential = sysCredential(process.geteuid?.() ?? 0);
      const written = await rig.call(
        'write',
        { file, offset: 0n, stable: unstable, data },
        { credential },
      );
      expect(written.status).toBe(Nfs3Status.ok);
      writeFileSync(rig.file('g'), 'mine');
      chmodSync(rig.file('g'), 0);
      const read = await rig.call(
        'read',
        { file: await rig.handle('g'), offset: 0n, count: 9 },
        { credential },
      );
      expect(read).toMatchObject({ status: Nfs3Status.ok });
      expect(statSync(rig.file('g')).mode & 0o777).toBe(0);
    });

    it.each([
      ['a directory', 'isdir', () => mkdirSync(rig.file('x'))],
      ['a link', 'inval', () => symlinkSync('y', rig.file('x'))],
    ] as const)('neither reads nor writes %s', async (_what, status, make) => {
      make();
      const file = await rig.handle('x');
      const read = await rig.call('read', { file, offset: 0n, count: 1 });
      expect(read.status).toBe(Nfs3Status[status]);
      const data = Buffer.from('x');
      const written = await rig.call('write', { file, offset: 0n, stable: unstable, data });
      expect(written.status).toBe(Nfs3Status[status]);
    });
  });

  describe('CREATE', () => {
    it('unchecked accepts an existing file, and truncates it on request', async () => {
      writeFileSync(rig.file('f'), 'old bytes');
      expect((await create('f')).status).toBe(Nfs3Status.ok);
      expect(readFileSync(rig.file('f'), 'utf8')).toBe('old bytes');
      const cut = { mode: CreateMode.unchecked, attributes: { size: 3n } } as const;
      await rig.call('create', { where: { directory: root, name: name('f') }, how: cut });
      expect(readFileSync(rig.file('f'), 'utf8')).toBe('old');
    });

    it('guarded creates a new file only', async () => {
      expect((await create('f', GUARDED)).status).toBe(Nfs3Status.ok);
      expect(statSync(rig.file('f')).mode & 0o7777).toBe(0o600);
      expect((await create('f', GUARDED)).status).toBe(Nfs3Status.exist);
    });

    it('exclusive recognises its own verifier and no other', async () => {
      const how = { mode: CreateMode.exclusive, verifier: Buffer.from('8bytes!') };
      const first = await create('f', how);
      expect(first.status).toBe(Nfs3Status.ok);
      expect((await create('f', how)).status).toBe(Nfs3Status.ok);
      const other = { mode: CreateMode.exclusive, verifier: Buffer.from('another!') };
      expect((await create('f', other)).status).toBe(Nfs3Status.exist);
    });

    it('never treats a link as a file, wherever it leads', async () => {
      symlinkSync(`${rig.outside}/made`, rig.file('dangling'));
      symlinkSync(`${rig.outside}/canary`, rig.file('link'));
      for (const text of ['dangling', 'link']) {
        expect((await create(text)).status).toBe(Nfs3Status.exist);
        expect((await create(text, GUARDED)).status).toBe(Nfs3Status.exist);
      }
      expect(existsSync(`${rig.outside}/made`)).toBe(false);
    });
  });

  describe('names', () => {
    it('creates and removes directories, links and files', async () => {
      const where = { directory: root, name: name('d') };
      expect((await rig.call('mkdir', { where, attributes: { mode: 0o751 } })).status).toBe(0);
      expect(statSync(rig.file('d')).mode & 0o7777).toBe(0o751);
      const inside = { directory: await rig.handle('d'), name: name('link') };
      const path = name('../some where');
      expect((await rig.call('symlink', { where: inside, attributes: {}, path })).status).toBe(0);
      expect(readlinkSync(rig.file('d/link'))).toBe('../some where');
      const read = await rig.call('readlink', await rig.handle('d', 'link'));
      if (read.status !== Nfs3Status.ok) throw new Error('no path');
      expect(Buffer.from(read.ok.path)).toEqual(path);
      expect((await rig.call('rmdir', where)).status).toBe(Nfs3Status.notempty);
      expect((await rig.call('rmdir', inside)).status).toBe(Nfs3Status.notdir);
      expect((await rig.call('remove', where)).status).toBe(Nfs3Status.isdir);
      expect((await rig.call('remove', inside)).status).toBe(Nfs3Status.ok);
      expect((await rig.call('remove', inside)).status).toBe(Nfs3Status.noent);
      expect((await rig.call('rmdir', where)).status).toBe(Nfs3Status.ok);
      expect(existsSync(rig.file('d'))).toBe(false);
    });

    it('keeps a handle valid when its file is renamed, in either direction', async () => {
      mkdirSync(rig.file('d'));
      writeFileSync(rig.file('d/f'), 'x');
      const directory = await rig.handle('d');
      const file = await rig.handle('d', 'f');
      const moved = await rig.call('rename', {
        from: { directory: root, name: name('d') },
        to: { directory: root, name: name('e') },
      });
      expect(moved.status).toBe(Nfs3Status.ok);
      const out = await rig.call('rename', {
        from: { directory, name: name('f') },
        to: { directory: root, name: name('g') },
      });
      expect(out.status).toBe(Nfs3Status.ok);
      const read = await rig.call('read', { file, offset: 0n, count: 9 });
      expect(read.status).toBe(Nfs3Status.ok);
      expect(await rig.handle('g')).toEqual(file);
      expect(await rig.handle('e')).toEqual(directory);
    });

    it('makes the handle of a replaced file stale', async () => {
      writeFileSync(rig.file('a'), 'a');
      writeFileSync(rig.file('b'), 'b');
      const replaced = await rig.handle('b');
      const args = {
        from: { directory: root, name: name('a') },
        to: { directory: root, name: name('b') },
      };
      expect((await rig.call('rename', args)).status).toBe(Nfs3Status.ok);
      expect((await rig.call('getattr', replaced)).status).toBe(Nfs3Status.stale);
    });

    it('finds a file by either of its names', async () => {
      writeFileSync(rig.file('a'), 'a');
      const file = await rig.handle('a');
      const linked = await rig.call('link', { file, link: { directory: root, name: name('b') } });
      expect(linked).toMatchObject({ status: 0, ok: { attributes: { nlink: 2 } } });
      expect(await rig.handle('b')).toEqual(file);
      await rig.call('remove', { directory: root, name: name('a') });
      expect((await rig.call('read', { file, offset: 0n, count: 1 })).status).toBe(Nfs3Status.ok);
      await rig.call('remove', { directory: root, name: name('b') });
      expect((await rig.call('getattr', file)).status).toBe(Nfs3Status.stale);
    });

    it('does not accept a stale handle for a new file of the same name', async () => {
      writeFileSync(rig.file('a'), 'old');
      const old = await rig.handle('a');
      await rig.call('remove', { directory: root, name: name('a') });
      await create('a');
      expect((await rig.call('getattr', old)).status).toBe(Nfs3Status.stale);
    });

    it('refuses special files', async () => {
      const where = { directory: root, name: name('fifo') };
      const args = { where, type: FileType.fifo, attributes: {}, device: undefined };
      expect((await rig.call('mknod', args)).status).toBe(Nfs3Status.notsupp);
    });
  });

  describe('a repeated call', () => {
    it('gets the first answer, and is carried out once', async () => {
      writeFileSync(rig.file('a'), 'a');
      const args = { directory: root, name: name('a') };
      expect((await rig.call('remove', args, { xid: 7 })).status).toBe(Nfs3Status.ok);
      writeFileSync(rig.file('a'), 'again');
      expect((await rig.call('remove', args, { xid: 7 })).status).toBe(Nfs3Status.ok);
      expect(existsSync(rig.file('a'))).toBe(true);
      expect((await rig.call('remove', args, { xid: 7, address: '10.0.0.9' })).status).toBe(0);
      expect(existsSync(rig.file('a'))).toBe(false);
    });

    it('is another call when another user makes it', async () => {
      const args = { directory: root, name: name('a') };
      const credential = sysCredential(4711);
      writeFileSync(rig.file('a'), 'a');
      expect((await rig.call('remove', args, { xid: 7 })).status).toBe(Nfs3Status.ok);
      writeFileSync(rig.file('a'), 'again');
      // A caller never gets another's success.
      expect((await rig.call('remove', args, { xid: 7, credential })).status).toBe(
        Nfs3Status.acces,
      );
      expect(existsSync(rig.file('a'))).toBe(true);
    });

    it('is another call when its arguments are', async () => {
      expect((await create('a', GUARDED, 9)).status).toBe(Nfs3Status.ok);
      expect((await create('b', GUARDED, 9)).status).toBe(Nfs3Status.ok);
      expect(existsSync(rig.file('b'))).toBe(true);
    });
  });

  describe('users', () => {
    it('get the rights of the mode from ACCESS', async () => {
      writeFileSync(rig.file('f'), '');
      chmodSync(rig.file('f'), 0o640);
      const object = await rig.handle('f');
      const all = Object.values(Access3).reduce((bits, bit) => bits | bit, 0);
      const granted = async (credential: typeof SUPERUSER) => {
        const outcome = await rig.call('access', { object, access: all }, { credential });
        return outcome.status === Nfs3Status.ok ? outcome.ok.access : -1;
      };
      const { uid, gid } = statSync(rig.file('f'));
      expect(await granted(SUPERUSER)).toBe(Access3.read | Access3.modify | Access3.extend);
      expect(await granted(sysCredential(uid))).toBe(
        Access3.read | Access3.modify | Access3.extend,
      );
      expect(await granted(sysCredential(7777, [gid]))).toBe(Access3.read);
      expect(await granted(sysCredential(7777))).toBe(0);
      expect(await granted({ flavor: 'none' })).toBe(0);
    });

    it('can do no more than that', async () => {
      writeFileSync(rig.file('f'), 'secret');
      chmodSync(rig.file('f'), 0o600);
      chmodSync(rig.path, 0o755);
      const file = await rig.handle('f');
      const other = { credential: sysCredential(7777) };
      const { acces, perm } = Nfs3Status;
      expect((await rig.call('read', { file, offset: 0n, count: 9 }, other)).status).toBe(acces);
      const data = Buffer.from('x');
      const write = { file, offset: 0n, stable: unstable, data };
      expect((await rig.call('write', write, other)).status).toBe(acces);
      const mode = { object: file, attributes: { mode: 0o666 }, guardCtime: undefined };
      expect((await rig.call('setattr', mode, other)).status).toBe(perm);
      const entry = { directory: root, name: name('f') };
      expect((await rig.call('remove', entry, other)).status).toBe(acces);
      expect((await rig.call('create', createArgs('g', UNCHECKED), other)).status).toBe(acces);
    });
  });

  describe('set-user-ID', () => {
    it('is cleared by another user’s write, and kept by the superuser’s', async () => {
      writeFileSync(rig.file('f'), '');
      chmodSync(rig.file('f'), 0o6777);
      const file = await rig.handle('f');
      const write = { file, offset: 0n, stable: unstable, data: Buffer.from('x') };
      if (process.geteuid?.() === 0) {
        expect((await rig.call('write', write)).status).toBe(Nfs3Status.ok);
        expect(statSync(rig.file('f')).mode & 0o7777).toBe(0o6777);
      }
      const other = { credential: sysCredential(7777) };
      expect((await rig.call('write', write, other)).status).toBe(Nfs3Status.ok);
      expect(statSync(rig.file('f')).mode & 0o7777).toBe(0o777);
    });
  });

  describe('an export that squashes root, as it does by default', () => {
    it('maps user 0 of a client to user nobody', async () => {
      rig = new NfsRig({ squashRoot: true }, undefined, calls);
      const directory = await rig.mount();
      chmodSync(rig.path, 0o755);
      writeFileSync(rig.file('own'), 'bytes', { mode: 0o600 });
      const remove = { directory, name: name('own') };
      const asRoot = { credential: sysCredential(0) };
      expect((await rig.call('remove', remove, asRoot)).status).toBe(Nfs3Status.acces);
      expect(existsSync(rig.file('own'))).toBe(true);
      const uid = process.getuid?.() ?? 0;
      const owner = { credential: sysCredential(uid === 0 ? 4711 : uid) };
      expect((await rig.call('remove', remove, owner)).status).toBe(
        uid === 0 ? Nfs3Status.acces : Nfs3Status.ok,
      );
    });
  });

  describe('a read-only export', () => {
    it('refuses every change, and shows it in ACCESS', async () => {
      rig.clean();
      rig = new NfsRig({ readOnly: true }, undefined, calls);
      root = await rig.mount();
      writeFileSync(rig.file('f'), 'kept');
      const file = await rig.handle('f');
      const where = { directory: root, name: name('n') };
      const f = { directory: root, name: name('f') };
      const outcomes = [
        await rig.call('setattr', { object: file, attributes: { mode: 0 }, guardCtime: undefined }),
        await rig.call('write', { file, offset: 0n, stable: 0, data: Buffer.from('x') }),
        await rig.call('commit', { file, offset: 0n, count: 0 }),
        await rig.call('create', { where, how: UNCHECKED }),
        await rig.call('mkdir', { where, attributes: {} }),
        await rig.call('symlink', { where, attributes: {}, path: name('x') }),
        await rig.call('mknod', { where, type: 7, attributes: {}, device: undefined }),
        await rig.call('remove', f),
        await rig.call('rmdir', f),
        await rig.call('rename', { from: f, to: where }),
        await rig.call('link', { file, link: where }),
      ];
      expect(outcomes.map(({ status }) => status)).toEqual(outcomes.map(() => Nfs3Status.rofs));
      const outcome = await rig.call('access', { object: file, access: 0x3f });
      expect(outcome).toMatchObject({ ok: { access: Access3.read } });
      expect((await rig.call('read', { file, offset: 0n, count: 9 })).status).toBe(Nfs3Status.ok);
    });
  });

  describe('many links', () => {
    it('share one handle', async () => {
      writeFileSync(rig.file('0'), '');
      for (let i = 1; i < 20; i++) linkSync(rig.file('0'), rig.file(String(i)));
      const handles = new Set<string>();
      for (let i = 0; i < 20; i++)
        handles.add(Buffer.from(await rig.handle(String(i))).toString('hex'));
      expect(handles.size).toBe(1);
    });
  });
});
