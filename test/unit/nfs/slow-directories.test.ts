/** Directories of a slow file system, on an export with otherwise fast files. */
import { mkdirSync, mkdtempSync, readlinkSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NfsRig, name } from '#test/support/nfs-rig';
import { Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { cookieOf } from '#verbs-api/nfs/server/directory-listing';
import {
  type DirectoryFiles,
  LISTINGS_AT_ONCE,
  MEMORY_FILES,
  WAITING_FILES,
} from '#verbs-api/nfs/server/directory-reader';
import { SLICE_STEPS } from '#verbs-api/nfs/server/slices';

const VERIFIER = new Uint8Array(8);

/** Directories named `slow…`, and files named `slow`, wait until the test releases them. */
class SlowFiles implements DirectoryFiles {
  readonly waiting: (() => void)[] = [];

  async names(path: string): Promise<string[]> {
    if (/\/slow[^/]*$/.test(readlinkSync(path.slice(0, -2)))) await this.#wait();
    return await WAITING_FILES.names(path);
  }

  async stats(path: Buffer) {
    if (path.toString('latin1').endsWith('/slow')) await this.#wait();
    return await WAITING_FILES.stats(path);
  }

  /** Releases all waiting calls. */
  resume(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }
}

let files: SlowFiles;
let rig: NfsRig;

function setUp(descriptorsMax: number): void {
  files = new SlowFiles();
  rig = new NfsRig({ descriptorsMax }, files);
}

beforeEach(() => setUp(64));
afterEach(() => {
  expect(rig.failures).toEqual([]);
  rig.clean();
});

/** A directory of the export, with files in it. */
async function directory(text: string, ...names: readonly string[]): Promise<Uint8Array> {
  mkdirSync(rig.file(text));
  for (const each of names) writeFileSync(rig.file(`${text}/${each}`), each);
  return await rig.handle(text);
}

async function list(handle: Uint8Array): Promise<readonly string[] | number> {
  const args = { directory: handle, cookie: 0n, cookieVerifier: VERIFIER };
  const listed = await rig.call('readdirplus', { ...args, dirCount: 4096, maxCount: 8192 });
  if (listed.status !== Nfs3Status.ok) return listed.status;
  return listed.ok.entries.map((entry) => Buffer.from(entry.name).toString('latin1')).sort();
}

/** Resolves once `count` reads of slow directories have begun. */
async function begun(count: number): Promise<void> {
  await expect.poll(() => files.waiting.length).toBe(count);
}

describe('a directory that is slow to read', () => {
  it('delays its own call only', async () => {
    const slow = await directory('slow', 'f');
    const quick = await directory('quick', 'g');
    const file = await rig.handle('quick', 'g');
    const listing = list(slow);
    await begun(1);
    expect(await list(quick)).toEqual(['.', '..', 'g']);
    expect((await rig.call('read', { file, offset: 0n, count: 9 })).status).toBe(Nfs3Status.ok);
    expect((await rig.call('lookup', { directory: slow, name: name('f') })).status).toBe(0);
    files.resume();
    expect(await listing).toEqual(['.', '..', 'f']);
  });

  it('delays its own call only, if a single file of it is slow', async () => {
    const half = await directory('half', 'a', 'slow', 'z');
    const listing = list(half);
    await begun(1);
    expect(await rig.attributes('half', 'a')).toMatchObject({ size: 1n });
    files.resume();
    expect(await listing).toEqual(['.', '..', 'a', 'slow', 'z']);
  });

  it('takes a bounded number of threads, however many calls list it', async () => {
    const slow = await directory('slow', 'f');
    const listings = Array.from({ length: LISTINGS_AT_ONCE + 3 }, () => list(slow));
    await begun(LISTINGS_AT_ONCE);
    // A late call is answered from another's listing.
    let ended = 0;
    for (const listing of listings) void listing.then(() => (ended += 1));
    while (ended < listings.length) {
      await expect.poll(() => files.waiting.length > 0 || ended === listings.length).toBe(true);
      expect(files.waiting.length).toBeLessThanOrEqual(LISTINGS_AT_ONCE);
      files.resume();
    }
    for (const listing of listings) expect(await listing).toEqual(['.', '..', 'f']);
  });

  it('is listed under its own descriptor, though the server closes others meanwhile', async () => {
    rig.clean();
    setUp(2);
    const slow = await directory('slow', 'f');
    const listing = list(slow);
    await begun(1);
    for (let index = 0; index < 20; index++) await directory(`other-${index}`);
    files.resume();
    expect(await listing).toEqual(['.', '..', 'f']);
  });

  it('is stale when it is moved out of the export meanwhile: nothing of it is shown', async () => {
    const slow = await directory('slow', 'f');
    const listing = list(slow);
    await begun(1);
    renameSync(rig.file('slow'), `${rig.outside}/slow`);
    files.resume();
    expect(await listing).toBe(Nfs3Status.stale);
  });
});

describe('a directory of 200,000 names', () => {
  const COUNT = 200_000;

  /** Turns of the event loop while `work` is in progress. */
  async function turnsDuring(work: Promise<unknown>): Promise<number> {
    let turns = 0;
    let over = false;
    const ended = work.finally(() => {
      over = true;
    });
    while (!over) {
      await new Promise((resolve) => setImmediate(resolve));
      turns += 1;
    }
    await ended;
    return turns;
  }

  it('is hashed and sorted in slices, with turns for others between', async () => {
    const found = Array.from({ length: COUNT }, (_, at) => `file-${at}`);
    rig.clean();
    // One real file stands for all of them.
    const stats = () => MEMORY_FILES.stats(Buffer.from(rig.file('many/one')));
    rig = new NfsRig({}, { names: () => found, stats });
    const handle = await directory('many', 'one');
    const args = { directory: handle, cookie: 0n, cookieVerifier: VERIFIER, count: 100_000 };
    const listing = rig.call('readdir', args);
    const turns = await turnsDuring(listing);
    // Hashing with sorting, six rounds of merging, and the list itself.
    expect(turns).toBeGreaterThanOrEqual(8 * Math.floor(COUNT / SLICE_STEPS));
    const listed = await listing;
    if (listed.status !== Nfs3Status.ok) throw new Error(`status ${listed.status}`);
    const { entries } = listed.ok;
    expect(entries.length).toBeGreaterThan(1000);
    const cookies = entries.map(({ cookie }) => Number(cookie));
    expect(cookies.every((cookie, at) => at === 0 || cookie > (cookies[at - 1] ?? 0))).toBe(true);
    const least = found.map(cookieOf).reduce((left, right) => Math.min(left, right));
    expect(cookies[2]).toBe(least);
  });

  it('is read in slices if it is in memory', async () => {
    const folder = mkdtempSync('/dev/shm/iwarpd-names-');
    const count = 5 * SLICE_STEPS + 1;
    for (let at = 0; at < count; at += 1) writeFileSync(join(folder, `${at}`), '');
    const reading = Promise.resolve(MEMORY_FILES.names(folder));
    expect(await turnsDuring(reading)).toBeGreaterThanOrEqual(5);
    expect(new Set(await reading).size).toBe(count);
    rmSync(folder, { recursive: true });
  });
});

describe('directory readers', () => {
  it('find the same in memory as elsewhere, and omit removed names', async () => {
    await directory('d', 'x', 'y', '\u00e9');
    const path = rig.file('d');
    const names = await WAITING_FILES.names(path);
    expect([...names].sort()).toEqual([...(await MEMORY_FILES.names(path))].sort());
    expect(names).toContain('\u00c3\u00a9');
    for (const reader of [MEMORY_FILES, WAITING_FILES]) {
      expect(await reader.stats(Buffer.from(`${path}/x`))).toMatchObject({ size: 1n });
      expect(await reader.stats(Buffer.from(`${path}/gone`))).toBeUndefined();
      await expect((async () => reader.stats(Buffer.from(`${path}/x/y`)))()).rejects.toThrow(
        /ENOTDIR/,
      );
    }
  });
});
