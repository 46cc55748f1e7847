/**
 * Shows the devices' files in /sys by mounts, for programs that no preload library reaches: static ones, and
 * those that make system calls themselves.
 *
 * The program gets a mount namespace of its own; a user other than root also gets a user namespace, in which
 * mounting is permitted, and below it another one, in which the user has the usual id again. /sys becomes a
 * file system of mounts: of the daemon's tree over the kernel's where both have a directory, of one of them
 * elsewhere. A user namespace may not mount an overlay on /sys itself, which has mounts below it.
 */
import { spawnSync } from 'node:child_process';
import { CommandFailure, failureText } from '#daemon/console/failure';

/**
 * Arguments: the tree, the program's LD_PRELOAD, and the words to execute. The working directory of the part in parentheses is the kernel's /sys, although
 * it is covered; `-c` leaves its paths as they are.
 */
const SCRIPT = `
set -e
# An overlay does not see that a file is replaced, as the daemon does with counters; a bind mount does.
graft() {
  for path in "/sys/.own/$1"/*; do
    if [ ! -d "$path" ] || [ -L "$path" ]; then continue; fi
    if [ -e "./$1/\${path##*/}" ]; then graft "$1/\${path##*/}"
    else
      mount --bind "$path" "/sys/$1/\${path##*/}"
      mount -o remount,bind,ro "/sys/$1/\${path##*/}"
    fi
  done
}
(
  cd /sys
  mount -t tmpfs -o mode=755 iwarpd /sys
  mkdir /sys/.own /sys/.kernel
  mount --bind "$1" /sys/.own
  for name in *; do
    mkdir "/sys/$name"
    if [ -d "/sys/.own/$name" ]; then
      mkdir "/sys/.kernel/$name"
      mount -c --bind "./$name" "/sys/.kernel/$name"
      mount -t overlay -o "lowerdir=/sys/.own/$name:/sys/.kernel/$name" iwarpd "/sys/$name"
      umount -l "/sys/.kernel/$name"
      graft "$name"
    elif [ -d "./$name" ]; then
      mount -c --rbind "./$name" "/sys/$name"
    fi
  done
  umount -l /sys/.own
  rm -r /sys/.own /sys/.kernel
  mount -o remount,bind,ro /sys
)
preload=$2
shift 2
if [ -n "$preload" ]; then export LD_PRELOAD="$preload"; fi
exec "$@"
`;

/** Words that run the program `words` with the tree in /sys. */
function mounting(
  words: readonly string[],
  tree: string,
  preload: string,
  { uid, gid }: { readonly uid: number; readonly gid: number },
): string[] {
  const own = uid === 0 ? [] : ['--map-root-user'];
  const back = ['unshare', `--map-user=${uid}`, `--map-group=${gid}`, '--'];
  const script = ['sh', '-c', SCRIPT, 'sh', tree, preload, ...(uid === 0 ? [] : back)];
  return ['env', '-u', 'LD_PRELOAD', 'unshare', '--mount', ...own, '--', ...script, ...words];
}

/**
 * The same for a program of this user, which has these variables. CommandFailure if the kernel, or the container that this process is
 * in, does not permit the mounts.
 */
export function withMountedSysfs(
  words: readonly string[],
  { SYSFS_PATH: tree = '', LD_PRELOAD: preload = '' }: NodeJS.ProcessEnv,
): readonly string[] {
  const user = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const [command = '', ...rest] = mounting(['true'], tree, '', user);
  const { status, stderr, error } = spawnSync(command, rest, { encoding: 'utf8' });
  if (status === 0) return mounting(words, tree, preload, user);
  const [reason = ''] = error === undefined ? stderr.trim().split('\n') : [failureText(error)];
  throw new CommandFailure(
    `cannot mount the devices' files in /sys: ${reason || `status ${status}`}; --mount-sysfs needs unshare(1) and mount(8), and root or user namespaces that may mount`,
  );
}
