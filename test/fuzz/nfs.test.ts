/**
 * Hostile clients and local users of an NFS export: random octets as arguments, and random procedures
 * with hostile names while links take the place of directories. Beside the export lies a canary.
 */
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Nfs3Status } from '../../verbs-api/rpcrdma/nfs3/constants.ts';
import { MOUNT3 } from '../../verbs-api/rpcrdma/nfs3/mount3-program.ts';
import { NFS3 } from '../../verbs-api/rpcrdma/nfs3/nfs3-program.ts';
import { Prng } from '../sim/prng.ts';
import { NfsRig, name } from '../support/nfs-rig.ts';

// Thousands of files take a while on a busy disk.
vi.setConfig({ testTimeout: 60_000 });

const NFS_PROCEDURES = 22;
const MOUNT_PROCEDURES = 6;
const VERIFIER = new Uint8Array(8);
const HOSTILE_NAMES = [
  '.',
  '..',
  '../outside/canary',
  '/etc/passwd',
  'out',
  'out/canary',
  '',
  'a\0b',
  'x'.repeat(255),
  'x'.repeat(256),
  '\u00ff\u00fe',
  'canary',
] as const;
const NAMES = [...HOSTILE_NAMES, 'a', 'b', 'c', 'd', 'a', 'b', 'c', 'd'];

let rig: NfsRig;
let outsideBefore: string;

/** Everything that may not change, and may not be read either. */
function outsideState(): string {
  const entries = readdirSync(rig.outside).sort();
  const stats = ['canary', 'deep/canary'].map((path) => {
    const { mode, size, mtimeNs, ino, nlink } = lstatSync(join(rig.outside, path), {
      bigint: true,
    });
    return [mode, size, mtimeNs, ino, nlink].join(' ');
  });
  const { mode, mtimeNs } = lstatSync(rig.outside, { bigint: true });
  const octets = readFileSync(join(rig.outside, 'canary'), 'utf8');
  return [...entries, ...stats, mode, mtimeNs, octets].join('\n');
}

beforeEach(() => {
  rig = new NfsRig({ nodesMax: 64, descriptorsMax: 24 });
  mkdirSync(join(rig.outside, 'deep'));
  renameSync(join(rig.outside, 'canary'), join(rig.outside, 'deep/canary'));
  symlinkSync('deep/canary', join(rig.outside, 'canary'));
  outsideBefore = outsideState();
});

afterEach(() => {
  expect(outsideState()).toBe(outsideBefore);
  // A hostile call is refused; it is no fault of the server's that it came.
  expect(rig.failures).toEqual([]);
  rig.clean();
});

describe('arguments of random octets', () => {
  it('are refused or carried out, and the server goes on', async () => {
    const prng = new Prng(1);
    const root = await rig.mount();
    for (let round = 0; round < 4000; round++) {
      const isMount = prng.oneIn(8);
      const program = isMount ? MOUNT3 : NFS3;
      const procedure = prng.below((isMount ? MOUNT_PROCEDURES : NFS_PROCEDURES) + 2);
      const octets = new Uint8Array(4 * prng.below(40));
      prng.fill(octets);
      const { outcome } = await rig.answer(program, procedure, (writer) => {
        // With a good handle ahead, more of what follows is looked at.
        if (!prng.oneIn(4)) writer.opaque(root);
        for (const octet of octets) if (octet % 4 === 0) writer.uint32(octet % 8);
      });
      expect(['success', 'garbageArgs', 'procUnavail']).toContain(outcome.status);
    }
    expect((await rig.call('getattr', root)).status).toBe(Nfs3Status.ok);
  });
});

/** Does random things, as a client and as a local user who puts links in the way. */
class Attacker {
  readonly #prng: Prng;
  readonly #handles: Uint8Array[];
  /** Octets that READ and READLINK gave. */
  readonly read: string[] = [];

  constructor(seed: number, root: Uint8Array) {
    this.#prng = new Prng(seed);
    this.#handles = [root];
  }

  async step(): Promise<void> {
    if (this.#prng.oneIn(6)) return this.#actLocally();
    const outcome = await this.#call();
    if (outcome.status !== Nfs3Status.ok || typeof outcome.ok !== 'object') return;
    const { object, data } = outcome.ok as { object?: Uint8Array; data?: Uint8Array };
    if (object !== undefined) this.#handles.push(Uint8Array.from(object));
    if (this.#handles.length > 100) this.#handles.splice(1, 50);
    if (data !== undefined) this.read.push(Buffer.from(data).toString('latin1'));
  }

  #handle(): Uint8Array {
    const handle = this.#handles[this.#prng.below(this.#handles.length)] ?? VERIFIER;
    if (!this.#prng.oneIn(20)) return handle;
    const forged = Uint8Array.from(handle);
    const at = this.#prng.below(forged.length);
    forged[at] = (forged[at] ?? 0) ^ (1 << this.#prng.below(8));
    return forged;
  }

  #name(): Uint8Array {
    return name(NAMES[this.#prng.below(NAMES.length)] ?? 'a');
  }

  #entry() {
    return { directory: this.#handle(), name: this.#name() };
  }

  async #call(): Promise<{ status: number; ok?: unknown }> {
    const attributes = { mode: this.#prng.below(0o1000), size: BigInt(this.#prng.below(9)) };
    const offset = BigInt(this.#prng.below(20));
    const listing = { directory: this.#handle(), cookie: offset, cookieVerifier: VERIFIER };
    const calls = [
      () => rig.call('lookup', this.#entry()),
      () => rig.call('lookup', this.#entry()),
      () => rig.call('create', { where: this.#entry(), how: { mode: 0, attributes } }),
      () => rig.call('mkdir', { where: this.#entry(), attributes: { mode: 0o755 } }),
      () => rig.call('symlink', { where: this.#entry(), attributes: {}, path: name(rig.outside) }),
      () => rig.call('remove', this.#entry()),
      () => rig.call('rmdir', this.#entry()),
      () => rig.call('rename', { from: this.#entry(), to: this.#entry() }),
      () => rig.call('link', { file: this.#handle(), link: this.#entry() }),
      () => rig.call('read', { file: this.#handle(), offset, count: 100 }),
      () => rig.call('write', { file: this.#handle(), offset, stable: 0, data: name('written') }),
      () => rig.call('commit', { file: this.#handle(), offset, count: 0 }),
      () => rig.call('setattr', { object: this.#handle(), attributes, guardCtime: undefined }),
      () => rig.call('readdir', { ...listing, count: 1000 }),
      () => rig.call('readdirplus', { ...listing, dirCount: 1000, maxCount: 1000 }),
      () => rig.call('readlink', this.#handle()),
      () => rig.call('access', { object: this.#handle(), access: 63 }),
      () => rig.call('fsstat', this.#handle()),
    ];
    return (await calls[this.#prng.below(calls.length)]?.()) ?? { status: 1 };
  }

  #actLocally(): void {
    const letters = ['a', 'b', 'c', 'd'];
    const path = rig.file(letters[this.#prng.below(4)] ?? 'a');
    const other = rig.file(letters[this.#prng.below(4)] ?? 'b');
    try {
      switch (this.#prng.below(5)) {
        case 0:
          // A link takes the place of whatever was there.
          rmSync(path, { recursive: true, force: true });
          symlinkSync(rig.outside, path);
          break;
        case 1:
          renameSync(path, `${rig.folder}/aside-${this.#prng.next()}`);
          symlinkSync(join(rig.outside, 'canary'), path);
          break;
        case 2:
          // Not through a link: it is the server that is put to the test.
          if (lstatSync(other).isDirectory()) renameSync(path, join(other, 'moved'));
          break;
        case 3:
          rmSync(rig.file('out'), { recursive: true, force: true });
          symlinkSync('../outside', rig.file('out'));
          break;
        default:
          mkdirSync(path);
      }
    } catch {
      // What cannot be done now is done another time.
    }
  }
}

describe('random procedures with hostile names, while links are put in the way', () => {
  it.each([1, 2, 3, 4, 5, 6])('never reach out of the export (seed %i)', async (seed) => {
    const attacker = new Attacker(seed, await rig.mount());
    for (let step = 0; step < 1500; step++) await attacker.step();
    expect(attacker.read.length).toBeGreaterThan(0);
    expect(attacker.read.filter((text) => text.includes('canary'))).toEqual([]);
    expect(rig.served.tree.usage.nodes).toBeLessThanOrEqual(64);
    expect(rig.served.tree.usage.descriptors).toBeLessThanOrEqual(24);
  });

  it('would be noticed: a link that the test itself follows is an escape', async () => {
    symlinkSync(join(rig.outside, 'canary'), rig.file('link'));
    expect(readFileSync(rig.file('link'), 'utf8')).toBe('canary');
  });
});
