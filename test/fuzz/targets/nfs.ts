/**
 * Hostile clients and local users of an NFS export: arguments of random words, and procedures with
 * hostile names while links replace directories. A canary lies beside the export.
 */
import {
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Draws } from '#test/support/draws';
import { NfsRig, name, SUPERUSER, sysCredential } from '#test/support/nfs-rig';
import type { Attributes3 } from '#verbs-api/nfs/nfs3/attributes';
import { FileType, Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { MOUNT3 } from '#verbs-api/nfs/nfs3/mount3-program';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { ExportedTree } from '#verbs-api/nfs/server/exported-tree';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

const NODES_MAX = 64;
const DESCRIPTORS_MAX = 24;
const VERIFIER = new Uint8Array(8);
const NAMES = [
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
  ...['a', 'b', 'c', 'd', 'a', 'b', 'c', 'd', 'a', 'b', 'c', 'd'],
] as const;
const CREDENTIALS = [
  ...Array.from({ length: 8 }, () => SUPERUSER),
  sysCredential(1000, [4, 5]),
  { flavor: 'none' },
] as const;

/** Contents of the forbidden file, repeated: even a short read shows it. */
const CANARY = 'canary'.repeat(20);
const CANARY_PART = /cana|anar|nary|aryc|ryca|ycan/;

/** Everything that must be neither changed nor read. */
function outsideState(rig: NfsRig): string {
  const entries = readdirSync(rig.outside).sort();
  const stats = ['canary', 'deep/canary'].map((path) => {
    const found = lstatSync(join(rig.outside, path), { bigint: true });
    const { mode, size, mtimeNs, ino, nlink } = found;
    return [mode, size, mtimeNs, ino, nlink].join(' ');
  });
  const { mode, mtimeNs } = lstatSync(rig.outside, { bigint: true });
  const bytes = readFileSync(join(rig.outside, 'canary'), 'utf8');
  return [...entries, ...stats, mode, mtimeNs, bytes].join('\n');
}

class Attack implements FuzzState {
  readonly #rig = new NfsRig({ nodesMax: NODES_MAX, descriptorsMax: DESCRIPTORS_MAX });
  readonly #outside: string;
  /** Known handles of directories, the root first, and of other files. */
  readonly #directories: Uint8Array[] = [];
  readonly #files: Uint8Array[] = [];
  /** Handles used by the current call. */
  #used: Uint8Array[] = [];
  #draws: Draws;
  #moved = 0;

  constructor(draws: Draws) {
    const { outside } = this.#rig;
    mkdirSync(join(outside, 'deep'));
    rmSync(join(outside, 'canary'));
    writeFileSync(join(outside, 'deep/canary'), CANARY);
    symlinkSync('deep/canary', join(outside, 'canary'));
    this.#outside = outsideState(this.#rig);
    this.#draws = draws;
  }

  async run(draws: Draws): Promise<Outcome> {
    this.#draws = draws;
    if (this.#directories.length === 0) this.#directories.push(await this.#rig.mount());
    const kind = draws.below(8);
    if (kind === 0) return this.#actLocally();
    const outcome = kind === 1 ? await this.#noise() : await this.#call();
    claim(this.#rig.failures.length === 0, `a handler failed: ${this.#rig.failures[0]}`);
    return outcome;
  }

  close(): void {
    const rig = this.#rig;
    try {
      claim(outsideState(rig) === this.#outside, 'a file outside of the export changed');
      const { nodes, descriptors } = rig.served.tree.usage;
      claim(nodes <= NODES_MAX, `${nodes} nodes`);
      claim(descriptors <= DESCRIPTORS_MAX, `${descriptors} descriptors`);
    } finally {
      rig.clean();
    }
  }

  /** Random words as arguments, usually after a valid handle. */
  async #noise(): Promise<Outcome> {
    const draws = this.#draws;
    const isMount = draws.oneIn(8);
    const program = isMount ? MOUNT3 : NFS3;
    const procedure = draws.below(isMount ? 8 : 24);
    const kinds = ['file', 'directory'] as const;
    const handle = draws.oneIn(4) ? undefined : this.#handle(draws.pick(kinds));
    const words = Array.from({ length: draws.below(40) }, () =>
      draws.oneIn(6) ? draws.word() : draws.below(12),
    );
    if (draws.recording) draws.show(`procedure ${procedure} ${words.join(' ')}`);
    const credential = draws.pick(CREDENTIALS);
    const { outcome } = await this.#rig.answer(
      program,
      procedure,
      (writer) => {
        if (handle !== undefined) writer.opaque(handle);
        for (const word of words) writer.uint32(word);
      },
      { credential },
    );
    claim(
      ['success', 'garbageArgs', 'procUnavail'].includes(outcome.status),
      `answers with ${outcome.status}`,
    );
    return outcome.status;
  }

  async #call(): Promise<Outcome> {
    this.#used = [];
    const which = this.#draws.below(22);
    const { status, ok } = await this.#procedure(which);
    if (status === Nfs3Status.stale) this.#forget(this.#used);
    if (status !== Nfs3Status.ok || typeof ok !== 'object' || ok === null)
      return `status ${status}`;
    const { object, attributes, data } = ok as {
      object?: Uint8Array;
      attributes?: Attributes3;
      data?: unknown;
    };
    if (object instanceof Uint8Array && attributes?.type !== FileType.lnk) {
      this.#learn(Uint8Array.from(object), attributes?.type === FileType.dir);
    }
    if (data instanceof Uint8Array) {
      claim(!CANARY_PART.test(Buffer.from(data).toString('latin1')), 'the canary can be read');
    }
    return 'ok';
  }

  #learn(handle: Uint8Array, isDirectory: boolean): void {
    const known = isDirectory ? this.#directories : this.#files;
    known.push(handle);
    if (known.length > 40) known.splice(1, 20);
  }

  /** Forgets handles of removed files to make room for others; keeps the root. */
  #forget(handles: readonly Uint8Array[]): void {
    const gone = (handle: Uint8Array): boolean => handles.includes(handle);
    for (const known of [this.#directories, this.#files]) {
      const kept = known.filter(
        (handle, index) => !gone(handle) || (index === 0 && known === this.#directories),
      );
      known.splice(0, known.length, ...kept);
    }
  }

  #handle(kind: 'directory' | 'file'): Uint8Array {
    const draws = this.#draws;
    const [root] = this.#directories;
    const likely = draws.oneIn(8) !== (kind === 'directory');
    const known = likely ? this.#directories : this.#files;
    const handle =
      (draws.oneIn(3) && kind === 'directory') || known.length === 0 ? root : draws.pick(known);
    if (handle === undefined) throw new Error('the root has no handle');
    this.#used.push(handle);
    if (!draws.oneIn(20)) return handle;
    const forged = Uint8Array.from(handle);
    const at = draws.below(forged.length);
    forged[at] = (forged[at] ?? 0) ^ (1 << draws.below(8));
    return draws.oneIn(3) ? forged.subarray(0, draws.below(forged.length + 1)) : forged;
  }

  #entry() {
    return { directory: this.#handle('directory'), name: name(this.#draws.pick(NAMES)) };
  }

  #procedure(which: number): Promise<{ status: number; ok?: unknown }> {
    const draws = this.#draws;
    const rig = this.#rig;
    const options = { credential: draws.pick(CREDENTIALS) };
    const attributes = {
      mode: draws.oneIn(2) ? 0o644 : draws.oneIn(4) ? draws.word() : draws.below(0o10000),
      size: draws.oneIn(8) ? draws.wide() >> 1n : BigInt(draws.below(9)),
    };
    // A file of petabytes is sparse, but its file system may not support the size.
    if (attributes.size > 1_000_000n) attributes.size %= 1_000_000n;
    const offset = draws.oneIn(8) ? draws.wide() : BigInt(draws.below(20));
    const writeOffset = offset % 1_000_000n;
    const count = draws.oneIn(8) ? draws.word() : draws.below(2000);
    const listing = {
      directory: this.#handle('directory'),
      cookie: offset,
      cookieVerifier: VERIFIER,
    };
    const object = this.#handle('file');
    if (draws.recording) draws.show(`procedure ${which} count ${count} offset ${offset}`);
    switch (which) {
      case 0:
      case 1:
        return rig.call('lookup', this.#entry(), options);
      case 2: {
        const how = { mode: 0, attributes } as const;
        return rig.call('create', { where: this.#entry(), how }, options);
      }
      case 3:
        return rig.call('mkdir', { where: this.#entry(), attributes: { mode: 0o755 } }, options);
      case 4: {
        const path = name(draws.oneIn(2) ? rig.outside : draws.pick(NAMES));
        return rig.call('symlink', { where: this.#entry(), attributes: {}, path }, options);
      }
      case 5:
        return rig.call('remove', this.#entry(), options);
      case 6:
        return rig.call('rmdir', this.#entry(), options);
      case 7:
        return rig.call('rename', { from: this.#entry(), to: this.#entry() }, options);
      case 8:
        return rig.call('link', { file: object, link: this.#entry() }, options);
      case 9:
      case 19:
      case 20:
        return rig.call('read', { file: object, offset, count }, options);
      case 10: {
        const data = draws.bytes(draws.below(60));
        const stable = draws.pick([0, 1, 2] as const);
        return rig.call('write', { file: object, offset: writeOffset, stable, data }, options);
      }
      case 11:
        return rig.call('commit', { file: object, offset, count }, options);
      case 12:
        return rig.call('setattr', { object, attributes, guardCtime: undefined }, options);
      case 13:
        return rig.call('readdir', { ...listing, count }, options);
      case 14:
        return rig.call('readdirplus', { ...listing, dirCount: count, maxCount: count }, options);
      case 15:
        return rig.call('readlink', object, options);
      case 16:
        return rig.call('access', { object, access: draws.below(64) }, options);
      case 17:
        return rig.call('getattr', object, options);
      default:
        return rig.call('fsstat', object, options);
    }
  }

  /** A local user replaces directories with links. */
  #actLocally(): Outcome {
    const draws = this.#draws;
    const rig = this.#rig;
    const letters = ['a', 'b', 'c', 'd'] as const;
    const path = rig.file(draws.pick(letters));
    const other = rig.file(draws.pick(letters));
    try {
      switch (draws.below(5)) {
        case 0:
          rmSync(path, { recursive: true, force: true });
          symlinkSync(rig.outside, path);
          break;
        case 1:
          renameSync(path, `${rig.folder}/aside-${this.#moved++}`);
          symlinkSync(join(rig.outside, 'canary'), path);
          break;
        case 2:
          // Do not follow a link here: the server is under test.
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
      return 'in vain';
    }
    return 'local';
  }
}

export const nfsExport: FuzzTarget = {
  name: 'nfs-export',
  about: 'NFS and MOUNT procedures with hostile arguments, names and links, beside a canary',
  batchInputs: 1_500,
  weight: 2_500,
  smokeInputs: 3_000,
  // A tree that can be made to read outside the export.
  canary: canary(3_000, ExportedTree.prototype, 'dataDescriptor', function* (open, ...given) {
    if (given[1] === 'write') return yield* open(...given);
    return openSync(join(this.path, '../outside/canary'), 'r');
  }),
  open: (draws) => new Attack(draws),
};
