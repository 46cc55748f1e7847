import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { flat, NfsRig, name } from '#test/support/nfs-rig';
import { Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { cookieOf } from '#verbs-api/nfs/server/directory-listing';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

const VERIFIER = new Uint8Array(8);
let rig: NfsRig;
let root: Uint8Array;

beforeEach(async () => {
  rig = new NfsRig();
  root = await rig.mount();
});

afterEach(() => rig.clean());

async function page(directory: Uint8Array, cookie: bigint, count = 2048) {
  const outcome = await rig.call('readdir', { directory, cookie, cookieVerifier: VERIFIER, count });
  if (outcome.status !== Nfs3Status.ok) throw new Error(`READDIR says ${outcome.status}`);
  const entries = outcome.ok.entries.map((entry) => ({
    text: Buffer.from(entry.name).toString('latin1'),
    cookie: entry.cookie,
  }));
  return { entries, eof: outcome.ok.eof };
}

/** All names; `between` runs after each page with the names of that page. */
async function names(
  directory: Uint8Array,
  between: (texts: readonly string[]) => unknown = () => undefined,
): Promise<string[]> {
  const found: string[] = [];
  let cookie = 0n;
  for (;;) {
    const { entries, eof } = await page(directory, cookie);
    const texts = entries.map(({ text }) => text);
    found.push(...texts);
    cookie = entries.at(-1)?.cookie ?? cookie;
    if (eof) return found;
    await between(texts.filter((text) => text !== '.' && text !== '..'));
  }
}

describe('READDIR', () => {
  it('returns every name once, with . and ..', async () => {
    const wanted = ['.', '..'];
    for (let i = 0; i < 2000; i++) {
      writeFileSync(rig.file(`file-${i}`), '');
      wanted.push(`file-${i}`);
    }
    expect((await names(root)).sort()).toEqual(wanted.sort());
  });

  it('skips and repeats nothing while listed names are removed', async () => {
    const wanted: string[] = [];
    for (let i = 0; i < 2000; i++) {
      writeFileSync(rig.file(`file-${i}`), '');
      wanted.push(`file-${i}`);
    }
    const found = await names(root, async (texts) => {
      for (const text of texts) {
        await rig.call('remove', { directory: root, name: name(text) });
      }
    });
    expect(found.filter((text) => text.length > 2).sort()).toEqual(wanted.sort());
  });

  it('keeps the position of names while others come and go', async () => {
    for (let i = 0; i < 300; i++) writeFileSync(rig.file(`stays-${i}`), '');
    for (let i = 0; i < 300; i++) writeFileSync(rig.file(`goes-${i}`), '');
    let round = 0;
    const found = await names(root, () => {
      for (let i = 0; i < 40; i++) {
        rmSync(rig.file(`goes-${round * 40 + i}`), { force: true });
        writeFileSync(rig.file(`comes-${round * 40 + i}`), '');
      }
      round += 1;
    });
    const stays = found.filter((text) => text.startsWith('stays-'));
    expect(stays).toHaveLength(300);
    expect(new Set(found).size).toBe(found.length);
  });

  it('starts anywhere, even after a removed name and past the end', async () => {
    for (let i = 0; i < 50; i++) writeFileSync(rig.file(`f${i}`), '');
    const first = await page(root, 0n, 1024);
    const last = first.entries.at(-1);
    if (last === undefined) throw new Error('no entry');
    const next = await page(root, last.cookie, 1024);
    rmSync(rig.file(last.text));
    expect((await page(root, last.cookie, 1024)).entries).toEqual(next.entries);
    expect(await page(root, 2n ** 64n - 1n)).toEqual({ entries: [], eof: true });
  });

  it('returns no more bytes than requested [NFSR-1813.3-03]', async () => {
    for (let i = 0; i < 100; i++) writeFileSync(rig.file('x'.repeat(1 + i * 2)), '');
    for (const limit of [256, 300, 512, 1000, 1024, 4096, 32_768]) {
      const readdir = { directory: root, cookie: 2n, cookieVerifier: VERIFIER, count: limit };
      const outcome = await rig.call('readdir', readdir);
      if (outcome.status === Nfs3Status.toosmall) continue;
      const plain = new XdrWriter();
      NFS3.procedures.readdir.result.encode(plain, outcome);
      expect(flat(plain).length).toBeLessThanOrEqual(4 + limit);
      const plus = { directory: root, cookie: 2n, cookieVerifier: VERIFIER };
      const listed = await rig.call('readdirplus', { ...plus, dirCount: limit, maxCount: limit });
      const writer = new XdrWriter();
      NFS3.procedures.readdirplus.result.encode(writer, listed);
      expect(flat(writer).length).toBeLessThanOrEqual(4 + limit);
    }
  });

  it('fails with TOOSMALL when not even one entry fits', async () => {
    const args = { directory: root, cookie: 0n, cookieVerifier: VERIFIER, count: 110 };
    expect((await rig.call('readdir', args)).status).toBe(Nfs3Status.toosmall);
  });

  it('is refused on a file', async () => {
    writeFileSync(rig.file('f'), '');
    const directory = await rig.handle('f');
    const args = { directory, cookie: 0n, cookieVerifier: VERIFIER, count: 4096 };
    expect((await rig.call('readdir', args)).status).toBe(Nfs3Status.notdir);
  });
});

describe('READDIRPLUS', () => {
  it('returns the handles and attributes that LOOKUP would return', async () => {
    mkdirSync(rig.file('d'));
    writeFileSync(rig.file('d/f'), 'seven!!');
    const outcome = await rig.call('readdirplus', {
      directory: await rig.handle('d'),
      cookie: 0n,
      cookieVerifier: VERIFIER,
      dirCount: 4096,
      maxCount: 4096,
    });
    if (outcome.status !== Nfs3Status.ok) throw new Error('not listed');
    const found = new Map(
      outcome.ok.entries.map((entry) => [Buffer.from(entry.name).toString(), entry]),
    );
    expect([...found.keys()].sort()).toEqual(['.', '..', 'f']);
    expect(found.get('f')?.handle).toEqual(await rig.handle('d', 'f'));
    expect(found.get('f')?.attributes).toEqual(await rig.attributes('d', 'f'));
    expect(found.get('..')?.handle).toEqual(root);
  });
});

describe('cookies', () => {
  it('reserve those of . and .., and are spread out', () => {
    const cookies = Array.from({ length: 10_000 }, (_none, i) => cookieOf(`file-${i}`));
    expect(new Set(cookies).size).toBe(10_000);
    for (const cookie of cookies) {
      expect(cookie).toBeGreaterThan(2);
      expect(Number.isSafeInteger(cookie)).toBe(true);
    }
    const upperHalf = cookies.filter((cookie) => cookie > 2 ** 51).length;
    expect(upperHalf).toBeGreaterThan(4500);
    expect(upperHalf).toBeLessThan(5500);
  });
});
