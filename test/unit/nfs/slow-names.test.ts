/** Names and attributes on a slow file system, on an export that is fast elsewhere. */
import { existsSync, mkdirSync, readdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NfsRig, name } from '#test/support/nfs-rig';
import { CreateMode, Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { callsFor, type FileCalls, THREAD_CALLS } from '#verbs-api/nfs/server/file-calls';

/** Calls on names that start with `slow` wait until the test releases them. */
class SlowCalls {
  readonly waiting: (() => void)[] = [];
  readonly made: string[] = [];
  readonly calls: FileCalls = {
    ...THREAD_CALLS,
    lstat: (path) => this.#later('lstat', path, () => THREAD_CALLS.lstat(path)),
    open: (path, flags, mode) =>
      this.#later('open', path, () => THREAD_CALLS.open(path, flags, mode)),
    mkdir: (path, mode) => this.#later('mkdir', path, () => THREAD_CALLS.mkdir(path, mode)),
    rmdir: (path) => this.#later('rmdir', path, () => THREAD_CALLS.rmdir(path)),
    unlink: (path) => this.#later('unlink', path, () => THREAD_CALLS.unlink(path)),
    link: (from, to) => this.#later('link', to, () => THREAD_CALLS.link(from, to)),
    symlink: (target, path) =>
      this.#later('symlink', path, () => THREAD_CALLS.symlink(target, path)),
    readlink: (path) => this.#later('readlink', path, () => THREAD_CALLS.readlink(path)),
    rename: (from, to) => this.#later('rename', from, () => THREAD_CALLS.rename(from, to)),
  };
  /** Only these calls wait. */
  slow: ReadonlySet<string> = new Set();
  /** They wait with their result, which may then be out of date. */
  late = false;

  /** Releases all waiting calls. */
  resume(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  async #later<T>(call: string, path: string | Buffer, make: () => T | Promise<T>): Promise<T> {
    const waits = this.slow.has(call) && /\/slow[^/]*$/.test(path.toString('latin1'));
    if (waits) this.made.push(call);
    if (!waits || this.late) {
      const result = await make();
      if (waits) await this.#wait();
      return result;
    }
    await this.#wait();
    return await make();
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }
}

let slow: SlowCalls;
let rig: NfsRig;
let root: Uint8Array;

async function setUp(descriptorsMax: number): Promise<void> {
  slow = new SlowCalls();
  rig = new NfsRig({ descriptorsMax }, undefined, slow.calls);
  root = await rig.mount();
}

beforeEach(() => setUp(64));
afterEach(() => {
  expect(readdirSync(rig.outside).filter((each) => each !== 'canary')).toEqual([]);
  expect(rig.failures).toEqual([]);
  rig.clean();
});

const place = (text: string, directory = root) => ({ directory, name: name(text) });
const made = (text: string, directory = root) => ({
  where: place(text, directory),
  how: { mode: CreateMode.guarded, attributes: {} } as const,
});

/** Resolves once `count` slow calls have begun. */
async function begun(count: number): Promise<void> {
  await expect.poll(() => slow.waiting.length).toBe(count);
}

/** Each call, and which of its system calls is slow. */
const CALLS: Record<string, { slow: string; run: () => Promise<{ status: number }> }> = {
  LOOKUP: { slow: 'lstat', run: () => rig.call('lookup', place('slow-file')) },
  CREATE: { slow: 'open', run: () => rig.call('create', made('slow-new')) },
  MKDIR: {
    slow: 'mkdir',
    run: () => rig.call('mkdir', { where: place('slow-new'), attributes: {} }),
  },
  SYMLINK: {
    slow: 'symlink',
    run: () =>
      rig.call('symlink', { where: place('slow-new'), attributes: {}, path: name('anywhere') }),
  },
  REMOVE: { slow: 'unlink', run: () => rig.call('remove', place('slow-file')) },
  RMDIR: { slow: 'rmdir', run: () => rig.call('rmdir', place('slow-empty')) },
  RENAME: {
    slow: 'rename',
    run: () => rig.call('rename', { from: place('slow-file'), to: place('other') }),
  },
};

describe('a slow file system', () => {
  it.each(Object.entries(CALLS))('delays only the %s that needs it', async (_call, each) => {
    mkdirSync(rig.file('slow-empty'));
    mkdirSync(rig.file('quick'));
    writeFileSync(rig.file('slow-file'), '');
    writeFileSync(rig.file('quick/file'), 'quick');
    const quick = await rig.handle('quick');
    slow.slow = new Set([each.slow]);
    let over = false;
    const running = each.run().finally(() => {
      over = true;
    });
    await begun(1);
    const file = await rig.handle('quick', 'file');
    expect((await rig.call('getattr', file)).status).toBe(Nfs3Status.ok);
    expect((await rig.call('access', { object: quick, access: 63 })).status).toBe(Nfs3Status.ok);
    expect((await rig.call('read', { file, offset: 0n, count: 9 })).status).toBe(Nfs3Status.ok);
    expect((await rig.call('create', made('new', quick))).status).toBe(Nfs3Status.ok);
    expect((await rig.call('remove', place('new', quick))).status).toBe(Nfs3Status.ok);
    expect(over).toBe(false);
    slow.resume();
    expect((await running).status).toBe(Nfs3Status.ok);
  });

  it('carries a repeated call out once, even while the first is in progress', async () => {
    writeFileSync(rig.file('slow-file'), '');
    slow.slow = new Set(['unlink']);
    const first = rig.call('remove', place('slow-file'), { xid: 77 });
    await begun(1);
    const second = rig.call('remove', place('slow-file'), { xid: 77 });
    slow.resume();
    expect((await first).status).toBe(Nfs3Status.ok);
    expect(await second).toEqual(await first);
    expect(slow.made).toEqual(['unlink']);
  });

  it('makes the changes to a directory in the order in which they came', async () => {
    slow.slow = new Set(['mkdir']);
    const making = rig.call('mkdir', { where: place('slow-d'), attributes: {} });
    await begun(1);
    const removing = rig.call('rmdir', place('slow-d'));
    const again = rig.call('create', made('slow-d'));
    slow.resume();
    expect([(await making).status, (await removing).status, (await again).status]).toEqual([
      0, 0, 0,
    ]);
    expect(statSync(rig.file('slow-d')).isFile()).toBe(true);
  });

  it('answers renames that cross each other', async () => {
    for (const each of ['a', 'b']) mkdirSync(rig.file(each));
    writeFileSync(rig.file('a/slow-1'), '1');
    writeFileSync(rig.file('b/slow-2'), '2');
    const [a, b] = [await rig.handle('a'), await rig.handle('b')];
    slow.slow = new Set(['rename']);
    const over = rig.call('rename', { from: place('slow-1', a), to: place('1', b) });
    const back = rig.call('rename', { from: place('slow-2', b), to: place('2', a) });
    await begun(1);
    slow.resume();
    await begun(1);
    slow.resume();
    expect([(await over).status, (await back).status]).toEqual([0, 0]);
    expect([readdirSync(rig.file('a')), readdirSync(rig.file('b'))]).toEqual([['2'], ['1']]);
  });

  it('finds a directory that was renamed while it was looked up', async () => {
    await setUpAgain(1);
    mkdirSync(rig.file('slow-d'));
    const handle = await rig.handle('slow-d');
    slow.slow = new Set(['lstat']);
    slow.late = true;
    const looking = rig.call('lookup', place('slow-d'));
    await begun(1);
    slow.slow = new Set();
    const moved = rig.call('rename', { from: place('slow-d'), to: place('d') });
    expect((await moved).status).toBe(Nfs3Status.ok);
    slow.resume();
    expect((await looking).status).toBe(Nfs3Status.ok);
    // Its descriptor was closed to make room for another, so it is found again by name.
    mkdirSync(rig.file('other'));
    expect((await rig.call('getattr', await rig.handle('other'))).status).toBe(Nfs3Status.ok);
    expect((await rig.call('getattr', handle)).status).toBe(Nfs3Status.ok);
  });

  it('uses descriptors that are not closed meanwhile', async () => {
    await setUpAgain(2);
    mkdirSync(rig.file('dir'));
    writeFileSync(rig.file('dir/slow-file'), 'slow');
    const directory = await rig.handle('dir');
    slow.slow = new Set(['lstat']);
    const looking = rig.call('lookup', place('slow-file', directory));
    await begun(1);
    for (let index = 0; index < 20; index += 1) {
      mkdirSync(rig.file(`other-${index}`));
      await rig.handle(`other-${index}`, '.');
    }
    slow.resume();
    const found = await looking;
    if (found.status !== Nfs3Status.ok) throw new Error(`status ${found.status}`);
    expect(found.ok.attributes).toMatchObject({ size: 4n });
    expect(rig.served.tree.usage.descriptors).toBeLessThanOrEqual(2);
  });
});

describe('a directory that leaves the export while a call waits', () => {
  it('shows nothing', async () => {
    mkdirSync(rig.file('dir'));
    writeFileSync(rig.file('dir/slow-file'), 'secret');
    const directory = await rig.handle('dir');
    slow.slow = new Set(['lstat']);
    const looking = rig.call('lookup', place('slow-file', directory));
    await begun(1);
    renameSync(rig.file('dir'), `${rig.folder}/gone`);
    slow.resume();
    expect((await looking).status).toBe(Nfs3Status.stale);
  });

  it('gets nothing', async () => {
    mkdirSync(rig.file('dir'));
    const directory = await rig.handle('dir');
    slow.slow = new Set(['lstat']);
    const making = rig.call('create', made('slow-new', directory));
    await begun(1);
    renameSync(rig.file('dir'), `${rig.folder}/gone`);
    slow.resume();
    expect((await making).status).toBe(Nfs3Status.stale);
    expect(readdirSync(`${rig.folder}/gone`)).toEqual([]);
    expect(existsSync(rig.file('slow-new'))).toBe(false);
  });
});

describe('file systems', () => {
  it('in memory answer at once, those of other programs and hosts on threads', () => {
    expect(callsFor('/dev/shm').waits).toBe(false);
    // Stands for every file system that is not one of a local disk.
    expect(callsFor('/proc').waits).toBe(true);
  });
});

async function setUpAgain(descriptorsMax: number): Promise<void> {
  rig.clean();
  await setUp(descriptorsMax);
}
