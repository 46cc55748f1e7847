import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findProgram, preloadObstacle } from '#daemon/cli/program-file';
import { checked, libc } from '#native-bridge/libc/libc';
import { temporaryFolder } from '#test/support/temporary-folder';

const folder = temporaryFolder();
const uid = process.getuid?.() ?? 0;
const gid = process.getgid?.() ?? 0;
const SELF = { uid, gid };
const MACHINE = process.arch === 'arm64' ? 183 : 62;
const LOADER = '/lib64/ld-linux-x86-64.so.2';

/** A program file with this content and mode. */
function program(name: string, content: Uint8Array | string, mode = 0o755): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}

/** The start of an ELF program: its header, two segments, its loader's path. */
function elf(parts: { loader?: string; machine?: number; bits?: 1 | 2 } = {}): Buffer {
  const { loader, machine = MACHINE, bits = 2 } = parts;
  const bytes = Buffer.alloc(512);
  bytes.write('\x7fELF', 'latin1');
  bytes.writeUInt8(bits, 4);
  bytes.writeUInt16LE(machine, 18);
  bytes.writeBigUInt64LE(64n, 32);
  bytes.writeUInt16LE(56, 54);
  bytes.writeUInt16LE(2, 56);
  bytes.writeUInt32LE(1, 64);
  if (loader === undefined) return bytes;
  const segment = 64 + 56;
  bytes.writeUInt32LE(3, segment);
  bytes.writeBigUInt64LE(300n, segment + 8);
  bytes.writeBigUInt64LE(BigInt(loader.length + 1), segment + 32);
  bytes.write(`${loader}\0`, 300, 'latin1');
  return bytes;
}

const setxattr = libc.func(
  'int setxattr(const char *path, const char *name, void *value, uint64_t size, int flags)',
) as (path: string, name: string, value: Uint8Array, size: number, flags: number) => number;

const rootReason = uid === 0 ? '' : ' (only root can give them)';

/** Gives a file capabilities, as setcap does: `struct vfs_cap_data` of revision 2, effective. */
function setCapabilities(path: string, sets: { permitted: number; inheritable: number }): void {
  const value = new Uint8Array(20);
  const fields = new DataView(value.buffer);
  fields.setUint32(0, 0x0200_0001, true);
  for (const [index, set] of [sets.permitted, sets.inheritable].entries()) {
    fields.setUint32(4 + 4 * index, set % 2 ** 32, true);
    fields.setUint32(12 + 4 * index, Math.floor(set / 2 ** 32), true);
  }
  checked('setxattr', setxattr(path, 'security.capability', value, value.length, 0));
}

describe('a program that the preload library can load into', () => {
  it.each([LOADER, '/lib/ld-linux-aarch64.so.1', '/nix/store/x/ld-linux-x86-64.so.2'])(
    'has the loader %s',
    (loader) => {
      expect(preloadObstacle(program('dynamic', elf({ loader })), SELF)).toBeUndefined();
    },
  );

  it('is this Node, and /bin/sh', () => {
    expect(preloadObstacle('/bin/sh', SELF)).toBeUndefined();
  });

  it('may be a script with such an interpreter', () => {
    program('interpreter', elf({ loader: LOADER }));
    const script = program('script', `#! ${join(folder, 'interpreter')} -e\necho\n`);
    expect(preloadObstacle(script, SELF)).toBeUndefined();
  });

  it('may be set-user-ID to the user that runs it', () => {
    expect(preloadObstacle(program('own', elf({ loader: LOADER }), 0o4755), SELF)).toBeUndefined();
  });
});

describe('a program that the preload library cannot load into', () => {
  it('is static', () => {
    expect(preloadObstacle(program('static', elf()), SELF)).toContain('statically linked');
  });

  it('uses another C library', () => {
    const path = program('musl', elf({ loader: '/lib/ld-musl-x86_64.so.1' }));
    expect(preloadObstacle(path, SELF)).toContain('/lib/ld-musl-x86_64.so.1');
  });

  it('is built for another architecture, or for 32 bits', () => {
    const other = program('other', elf({ machine: 243, loader: LOADER }));
    expect(preloadObstacle(other, SELF)).toContain('architecture');
    const small = program('small', elf({ bits: 1, loader: LOADER }));
    expect(preloadObstacle(small, SELF)).toContain('architecture');
  });

  it('is set-user-ID or set-group-ID to another user', () => {
    const user = program('user', elf({ loader: LOADER }), 0o4755);
    expect(preloadObstacle(user, { uid: uid + 1, gid })).toContain('set-user-ID');
    const group = program('group', elf({ loader: LOADER }), 0o2755);
    expect(preloadObstacle(group, { uid, gid: gid + 1 })).toContain('set-user-ID');
  });

  it.runIf(uid === 0)(`has capabilities, unless root runs it${rootReason}`, () => {
    const path = program('capable', elf({ loader: LOADER }));
    const other = { uid: uid + 1, gid };
    setCapabilities(path, { permitted: 0, inheritable: 1 });
    expect(preloadObstacle(path, other)).toBeUndefined();
    for (const permitted of [2 ** 13, 2 ** 37]) {
      setCapabilities(path, { permitted, inheritable: 0 });
      expect(preloadObstacle(path, other)).toMatch(/has file capabilities/);
      expect(preloadObstacle(path, SELF)).toBeUndefined();
    }
  });

  it('is a script whose interpreter is static', () => {
    program('interpreter', elf());
    const script = program('script', `#!${join(folder, 'interpreter')}\n`);
    expect(preloadObstacle(script, SELF)).toContain('statically linked');
  });

  it('is not a file without a header, no program, or a loop of interpreters', () => {
    expect(preloadObstacle(program('short', elf().subarray(0, 20)), SELF)).toBeUndefined();
    expect(preloadObstacle(program('text', 'hello\n'), SELF)).toBeUndefined();
    const path = join(folder, 'loop');
    expect(preloadObstacle(program('loop', `#!${path}\n`), SELF)).toBeUndefined();
  });

  it('is cut off', () => {
    const odd = elf();
    odd.writeBigUInt64LE(1n << 40n, 32);
    const whole = elf({ loader: LOADER });
    for (const bytes of [odd, whole.subarray(0, 310), whole.subarray(0, 64)]) {
      expect(preloadObstacle(program('cut', bytes), SELF)).toContain('is damaged');
    }
  });
});

describe('finding a program', () => {
  it('takes a name with a slash as a path', () => {
    const path = program('here', elf());
    expect(findProgram(path, '')).toEqual({ path });
    expect(findProgram(join(folder, 'nowhere'), folder)).toEqual({ error: 'ENOENT' });
  });

  it('looks a name up, skipping folders and files that are not executable', () => {
    mkdirSync(join(folder, 'a/tool'), { recursive: true });
    mkdirSync(join(folder, 'b'));
    mkdirSync(join(folder, 'c'));
    program('b/tool', '', 0o644);
    const search = ['a', 'b'].map((name) => join(folder, name)).join(':');
    expect(findProgram('tool', search)).toEqual({ error: 'EACCES' });
    const path = program('c/tool', '');
    expect(findProgram('tool', `${search}:${join(folder, 'c')}`)).toEqual({ path });
    expect(findProgram('no-such-tool', search)).toEqual({ error: 'ENOENT' });
  });
});
