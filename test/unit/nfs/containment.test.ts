/** No action of a client or a local user ever reaches outside the export. */
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { NfsRig, name, WAYS } from '#test/support/nfs-rig';
import { MountStatus, Nfs3Status } from '#verbs-api/nfs/nfs3/constants';

let rig: NfsRig;
let root: Uint8Array;

describe.each(WAYS)('with system calls made %s', (_way, calls) => {
  beforeEach(async () => {
    rig = new NfsRig({}, undefined, calls);
    root = await rig.mount();
  });

  afterEach(() => {
    expect(readFileSync(`${rig.outside}/canary`, 'utf8')).toBe('canary');
    expect(rig.failures).toEqual([]);
    rig.clean();
  });

  async function lookupStatus(directory: Uint8Array, text: string): Promise<number> {
    return (await rig.call('lookup', { directory, name: name(text) })).status;
  }

  describe('handles', () => {
    it('of any other format are bad', async () => {
      const made: Uint8Array[] = [
        new Uint8Array(0),
        new Uint8Array(36),
        new Uint8Array(64).fill(0xff),
      ];
      made.push(root.subarray(0, 35), Uint8Array.from([...root, 0]));
      for (const handle of made) {
        expect((await rig.call('getattr', handle)).status).toBe(Nfs3Status.badhandle);
      }
    });

    it('with any bit flipped are bad or stale', async () => {
      const refused = new Set<number>([Nfs3Status.badhandle, Nfs3Status.stale]);
      for (let bit = 0; bit < root.length * 8; bit++) {
        const forged = Uint8Array.from(root);
        forged[bit >> 3] = (forged[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        expect(refused).toContain((await rig.call('getattr', forged)).status);
      }
    });

    it('of another run are stale', async () => {
      const other = new NfsRig({}, undefined, calls);
      onTestFinished(() => other.clean());
      const outcome = await rig.call('getattr', await other.mount());
      expect(outcome.status).toBe(Nfs3Status.stale);
    });

    it('of a file that a local user removed or replaced are stale', async () => {
      writeFileSync(rig.file('f'), 'x');
      const file = await rig.handle('f');
      rmSync(rig.file('f'));
      expect((await rig.call('getattr', file)).status).toBe(Nfs3Status.stale);
      writeFileSync(rig.file('f'), 'another');
      expect((await rig.call('read', { file, offset: 0n, count: 9 })).status).toBe(
        Nfs3Status.stale,
      );
    });

    it('are dropped, oldest first, when there are too many', async () => {
      rig.clean();
      rig = new NfsRig({ nodesMax: 8, descriptorsMax: 4 }, undefined, calls);
      root = await rig.mount();
      mkdirSync(rig.file('d'));
      const handles: Uint8Array[] = [];
      for (let i = 0; i < 20; i++) {
        writeFileSync(rig.file(`d/${i}`), String(i));
        handles.push(await rig.handle('d', String(i)));
      }
      const statuses = await Promise.all(
        handles.map(async (handle) => (await rig.call('getattr', handle)).status),
      );
      expect(statuses[0]).toBe(Nfs3Status.stale);
      expect(statuses.at(-1)).toBe(Nfs3Status.ok);
      expect(rig.served.tree.usage.nodes).toBeLessThanOrEqual(8);
      expect(rig.served.tree.usage.descriptors).toBeLessThanOrEqual(4);
      expect(await lookupStatus(await rig.handle('d'), '0')).toBe(Nfs3Status.ok);
    });
  });

  describe('names', () => {
    it('with a slash or a NUL, empty, or of 256 bytes are refused by every procedure', async () => {
      writeFileSync(rig.file('f'), '');
      const file = await rig.handle('f');
      const { inval, acces, nametoolong } = Nfs3Status;
      const names = [
        ['../outside/canary', inval],
        ['a/b', inval],
        ['/', inval],
        ['f\0', inval],
        ['', acces],
        ['x'.repeat(256), nametoolong],
      ] as const;
      for (const [text, status] of names) {
        const entry = { directory: root, name: name(text) };
        const good = { directory: root, name: name('good') };
        const how = { mode: 0, attributes: {} } as const;
        const outcomes = [
          await rig.call('lookup', entry),
          await rig.call('create', { where: entry, how }),
          await rig.call('mkdir', { where: entry, attributes: {} }),
          await rig.call('symlink', { where: entry, attributes: {}, path: name('x') }),
          await rig.call('remove', entry),
          await rig.call('rmdir', entry),
          await rig.call('rename', { from: { directory: root, name: name('f') }, to: entry }),
          await rig.call('rename', { from: entry, to: good }),
          await rig.call('link', { file, link: entry }),
        ];
        expect(outcomes.map((outcome) => outcome.status)).toEqual(outcomes.map(() => status));
      }
      expect(existsSync(rig.file('f'))).toBe(true);
    });

    it('of 255 bytes, of any bytes but those two, are valid', async () => {
      const bytes = Uint8Array.from({ length: 255 }, (_none, at) => (at + 1 === 0x2f ? 1 : at + 1));
      const where = { directory: root, name: bytes };
      const how = { mode: 1, attributes: {} } as const;
      expect((await rig.call('create', { where, how })).status).toBe(Nfs3Status.ok);
      expect((await rig.call('lookup', where)).status).toBe(Nfs3Status.ok);
      const listed = await rig.call('readdir', {
        directory: root,
        cookie: 0n,
        cookieVerifier: new Uint8Array(8),
        count: 4096,
      });
      if (listed.status !== Nfs3Status.ok) throw new Error('not listed');
      expect(listed.ok.entries.map((entry) => Buffer.from(entry.name))).toContainEqual(
        Buffer.from(bytes),
      );
      expect((await rig.call('remove', where)).status).toBe(Nfs3Status.ok);
    });

    it('. and .. lead to the directory and its parent, and from the root to the root', async () => {
      mkdirSync(rig.file('d'));
      const directory = await rig.handle('d');
      const found = async (from: Uint8Array, text: string) => {
        const outcome = await rig.call('lookup', { directory: from, name: name(text) });
        return outcome.status === Nfs3Status.ok ? outcome.ok.object : undefined;
      };
      expect(await found(directory, '.')).toEqual(directory);
      expect(await found(directory, '..')).toEqual(root);
      expect(await found(root, '..')).toEqual(root);
    });

    it('. and .. cannot be created, renamed or removed', async () => {
      mkdirSync(rig.file('d'));
      const directory = await rig.handle('d');
      const d = { directory: root, name: name('d') };
      for (const text of ['.', '..']) {
        const entry = { directory, name: name(text) };
        const outcomes = [
          await rig.call('create', { where: entry, how: { mode: 0, attributes: {} } }),
          await rig.call('mkdir', { where: entry, attributes: {} }),
          await rig.call('symlink', { where: entry, attributes: {}, path: name('x') }),
          await rig.call('rename', { from: d, to: entry }),
          await rig.call('rename', { from: entry, to: { directory: root, name: name('x') } }),
          await rig.call('remove', entry),
          await rig.call('rmdir', entry),
        ];
        expect(outcomes.every(({ status }) => status !== Nfs3Status.ok)).toBe(true);
      }
      expect(existsSync(rig.file('d'))).toBe(true);
    });
  });

  describe('links', () => {
    it('are not followed, at the end of a path or within it', async () => {
      symlinkSync(rig.outside, rig.file('out'));
      symlinkSync(`${rig.outside}/canary`, rig.file('canary'));
      const out = await rig.handle('out');
      expect(await lookupStatus(out, 'canary')).toBe(Nfs3Status.notdir);
      const file = await rig.handle('canary');
      expect((await rig.call('read', { file, offset: 0n, count: 9 })).status).toBe(
        Nfs3Status.inval,
      );
      const where = { directory: out, name: name('made') };
      const how = { mode: 0, attributes: {} } as const;
      expect((await rig.call('create', { where, how })).status).toBe(Nfs3Status.notdir);
      expect((await rig.call('mkdir', { where, attributes: {} })).status).toBe(Nfs3Status.notdir);
      const listing = { directory: out, cookie: 0n, cookieVerifier: new Uint8Array(8), count: 999 };
      expect((await rig.call('readdir', listing)).status).toBe(Nfs3Status.notdir);
      // The link itself is removed.
      await rig.call('remove', { directory: root, name: name('out') });
      expect(existsSync(rig.outside)).toBe(true);
      expect(existsSync(`${rig.outside}/made`)).toBe(false);
    });

    it('that take the place of a directory lead nowhere', async () => {
      mkdirSync(rig.file('d'));
      writeFileSync(rig.file('d/canary'), 'inside');
      const directory = await rig.handle('d');
      const file = await rig.handle('d', 'canary');
      renameSync(rig.file('d'), `${rig.folder}/moved`);
      symlinkSync(rig.outside, rig.file('d'));
      expect(await lookupStatus(directory, 'canary')).toBe(Nfs3Status.stale);
      expect((await rig.call('read', { file, offset: 0n, count: 9 })).status).toBe(
        Nfs3Status.stale,
      );
      const write = { file, offset: 0n, stable: 0, data: Buffer.from('x') } as const;
      expect((await rig.call('write', write)).status).toBe(Nfs3Status.stale);
      const entry = { directory, name: name('canary') };
      expect((await rig.call('remove', entry)).status).toBe(Nfs3Status.stale);
      expect(existsSync(`${rig.folder}/moved/canary`)).toBe(true);
    });
  });

  describe('a directory that a local user moves', () => {
    it('out of the export becomes unreachable, and reachable when moved back', async () => {
      mkdirSync(rig.file('d/e'), { recursive: true });
      writeFileSync(rig.file('d/e/f'), 'x');
      const file = await rig.handle('d', 'e', 'f');
      expect((await rig.call('getattr', file)).status).toBe(Nfs3Status.ok);
      renameSync(rig.file('d/e'), `${rig.outside}/e`);
      expect((await rig.call('getattr', file)).status).toBe(Nfs3Status.stale);
      renameSync(`${rig.outside}/e`, rig.file('e'));
      expect(await rig.handle('e', 'f')).toEqual(file);
      expect((await rig.call('getattr', file)).status).toBe(Nfs3Status.ok);
    });

    it('into its own cached child does not loop a path walk', async () => {
      mkdirSync(rig.file('a'));
      mkdirSync(rig.file('b'));
      const a = await rig.handle('a');
      const b = await rig.handle('b');
      renameSync(rig.file('b'), rig.file('a/b'));
      expect(await rig.handle('a', 'b')).toEqual(b);
      renameSync(rig.file('a/b'), rig.file('b'));
      renameSync(rig.file('a'), rig.file('b/a'));
      expect(await lookupStatus(b, 'a')).not.toBe(Nfs3Status.badhandle);
      expect(await rig.handle('b', 'a')).toEqual(a);
    });

    it('is found at any depth', async () => {
      const depth = 150;
      let directory = root;
      for (let i = 0; i < depth; i++) {
        const where = { directory, name: name('deep-enough-for-a-path-too-long') };
        const made = await rig.call('mkdir', { where, attributes: {} });
        if (made.status !== Nfs3Status.ok || made.ok.object === undefined)
          throw new Error('not made');
        directory = made.ok.object;
      }
      const where = { directory, name: name('f') };
      const how = { mode: 0, attributes: {} } as const;
      expect((await rig.call('create', { where, how })).status).toBe(Nfs3Status.ok);
      expect(await lookupStatus(directory, 'f')).toBe(Nfs3Status.ok);
      expect(rig.served.tree.usage.descriptors).toBeLessThanOrEqual(256);
    });
  });

  describe('MNT', () => {
    it('returns the export under its path and as /, and directories in it', async () => {
      mkdirSync(rig.file('d/e'), { recursive: true });
      expect(await rig.mount(rig.path)).toEqual(root);
      expect(await rig.mount(`${rig.path}/d/e`)).toEqual(await rig.handle('d', 'e'));
      expect(await rig.mount('/d')).toEqual(await rig.handle('d'));
    });

    it('returns nothing else', async () => {
      writeFileSync(rig.file('f'), '');
      symlinkSync(rig.outside, rig.file('out'));
      const { noent, acces, notdir } = MountStatus;
      expect(await rig.mountStatus(rig.outside)).toBe(noent);
      expect(await rig.mountStatus(`${rig.path}/../outside`)).toBe(acces);
      expect(await rig.mountStatus('/..')).toBe(acces);
      expect(await rig.mountStatus('/f')).toBe(notdir);
      expect(await rig.mountStatus('/out')).toBe(notdir);
      expect(await rig.mountStatus('/out/canary')).toBe(notdir);
      expect(await rig.mountStatus('/none')).toBe(noent);
      expect(await rig.mountStatus(`/${'x'.repeat(256)}`)).toBe(MountStatus.nametoolong);
    });
  });
});
