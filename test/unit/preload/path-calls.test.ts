/** Whether the preload library replaces every function of libc that takes the path of a file. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { missingPackages, repositoryRoot } from '#test/support/prerequisites';

/** Headers that declare functions with paths. */
const HEADERS =
  'dirent fcntl fts ftw glob stdio stdlib sys/acct sys/fanotify sys/inotify sys/ipc sys/mount sys/stat sys/statfs sys/statvfs sys/swap sys/time sys/xattr unistd utime wordexp';

/** Names of parameters that are paths, less the leading underscores. */
const PATH = /const char \*(?:__restrict )?_*(?:file|filename|name|path|pathname|dir|pattern)\b/;

/** Functions that are left to libc, by reason. */
const EXCUSED = {
  // The files are the daemon's, and their directories do not change.
  'change files':
    'chmod chown creat creat64 fchmodat fchownat futimesat lchmod lchown link linkat lremovexattr lsetxattr lutimes mkdir mkdirat mkdtemp mkfifo mkfifoat mknod mknodat remove removexattr rename renameat renameat2 rmdir setxattr symlink symlinkat truncate truncate64 unlink unlinkat utime utimensat utimes revoke',
  'act on programs, not on devices':
    'execl execle execlp execv execve execveat execvp execvpe posix_spawn posix_spawnp wordexp',
  'are for administrators':
    'acct chroot fanotify_mark fsopen fspick mount mount_setattr move_mount name_to_handle_at open_tree swapoff swapon umount umount2',
  'take names that are no paths':
    'fgetxattr fremovexattr fsetxattr getenv glob_pattern_p secure_getenv setdomainname setenv sethostname setlogin unsetenv',
  'make keys and names': 'ftok tempnam',
} as const;

/** The names that the library defines for paths. */
function definedCalls(): ReadonlySet<string> {
  const texts = ['path-calls.h', 'calls-on-paths.c', 'calls-on-rights.c'].map((file) => {
    return readFileSync(join(repositoryRoot(), 'native-bridge/preload', file), 'utf8');
  });
  const rows = /(?:\b(?:ROW|VARIADIC)\([\w *]+,|EXPORT [\w *]+[ *])\s*(\w+)[,(]/g;
  return new Set([...texts.join('\n').matchAll(rows)].map(([, name]) => name as string));
}

/** Functions of the headers that take a path and that libc exports. */
function pathCalls(exported: ReadonlySet<string>): string[] {
  const source = HEADERS.split(' ').map((header) => `#include <${header}.h>\n`);
  const flags = ['-E', '-P', '-D_GNU_SOURCE', '-x', 'c', '-'];
  const { stdout } = spawnSync('cc', flags, { input: source.join(''), encoding: 'utf8' });
  const names = stdout.split(';').flatMap((declaration) => {
    const [, name, parameters] = /(\w+) \((.*)/.exec(declaration.replace(/\s+/g, ' ')) ?? [];
    return name !== undefined && PATH.test(parameters ?? '') ? [name] : [];
  });
  return [...new Set(names)].filter((name) => exported.has(name));
}

/** Other names under which libc exports a function: checked, older and internal ones. */
function variants(name: string, exported: ReadonlySet<string>): string[] {
  const open = /^open/.test(name) ? [`__${name}_2`, `__${name}`] : [];
  const stat = /stat(?:at)?(?:64)?$/.test(name) ? [`__${name.replace(/^(f|l)?/, '$1x')}`] : [];
  return [`__${name}_chk`, ...open, ...stat].filter((each) => exported.has(each));
}

it.skipIf(missingPackages('native').length > 0)('no function with a path is forgotten', () => {
  const { stdout } = spawnSync(
    'sh',
    ['-c', 'nm -D --defined-only $(cc -print-file-name=libc.so.6)'],
    {
      encoding: 'utf8',
    },
  );
  const exported = new Set([...stdout.matchAll(/ [TWi] (\w+)/g)].map(([, name]) => name as string));
  const calls = pathCalls(exported);
  expect(calls).toEqual(expect.arrayContaining(['open', 'realpath', 'statx', 'opendir']));
  const excused = new Set(Object.values(EXCUSED).flatMap((names) => names.split(' ')));
  const all = calls.flatMap((name) =>
    excused.has(name) ? [] : [name, ...variants(name, exported)],
  );
  const defined = definedCalls();
  expect(all.filter((name) => !defined.has(name))).toEqual([]);
});
