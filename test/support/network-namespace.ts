/** A network namespace of its own, for tests that change addresses or name ports. */
import { spawnSync } from 'node:child_process';

/** Words before a command that run it in one; undefined where that or `probe` there is not permitted. */
export function networkNamespace(...probe: readonly string[]): readonly string[] | undefined {
  const ways = [
    ['unshare', '--net'],
    ['unshare', '--net', '--map-root-user'],
  ];
  return ways.find(
    ([command = '', ...rest]) => spawnSync(command, [...rest, ...probe]).status === 0,
  );
}
