/** Network namespaces for tests that change addresses or use fixed ports. */
import { spawnSync } from 'node:child_process';

/** Words that run a command in a new one; undefined if that, or `probe` in it, is not permitted. */
export function networkNamespace(...probe: readonly string[]): readonly string[] | undefined {
  const ways = [
    ['unshare', '--net'],
    ['unshare', '--net', '--map-root-user'],
  ];
  return ways.find(
    ([command = '', ...rest]) => spawnSync(command, [...rest, ...probe]).status === 0,
  );
}
