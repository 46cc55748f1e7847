/** Forged ICMP messages, which none of our packets caused. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { networkNamespace } from '../support/network-namespace.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';

/** Runs a command in a network namespace with raw sockets; undefined if not permitted. */
const apart = networkNamespace('ip', 'link');

const PREPARE = `
  ip link set lo up
  ip address add fd77::1/128 dev lo nodad
  ip address add fd77::2/128 dev lo nodad
  exec "$@"
`;

function run(program: string, ...words: readonly string[]): unknown {
  const path = join(repositoryRoot(), `dist/test/e2e/${program}.js`);
  const within = [...(apart ?? []), 'sh', '-c', PREPARE, 'sh', process.execPath, path, ...words];
  const [command = '', ...rest] = within;
  const { stdout, stderr } = spawnSync(command, rest, { encoding: 'utf8' });
  expect(stdout, stderr).not.toBe('');
  return JSON.parse(stdout);
}

describe('a forged ICMP message', () => {
  it.skipIf(apart === undefined).each([
    ['IPv4', '127.0.9.1', '127.0.9.2', '552', 20],
    ['IPv6', 'fd77::1', 'fd77::2', '1280', 40],
  ])(
    'does not change the path MTU of RoCE, which is never discovered: %s (needs a network namespace)',
    (...given) => {
      const [, near, far, believed, header] = given;
      // UDP's header, the base header, payload, ICRC.
      const whole = { success: true, longest: header + 8 + 12 + 4096 + 4 };
      expect(run('forged-icmp-ends', near, far)).toEqual({
        believed,
        before: whole,
        after: whole,
        again: whole,
      });
    },
  );
});

describeWith(['sctp'], 'a forged ICMP message about SCTP', () => {
  it.skipIf(apart === undefined).each([
    ['IPv4', '127.0.9.1', '127.0.9.2', 1400 - 20 - 8],
    ['IPv6', 'fd77::1', 'fd77::2', 1400 - 40 - 8],
  ])('counts if it quotes a tag of the association: %s (needs a network namespace)', (...given) => {
    const [, near, far, afterwards] = given;
    const found = run('forged-icmp-sctp', near, far);
    expect(found).toMatchObject({ same: true, afterwards: expect.any(Number) });
    expect((found as { afterwards: number }).afterwards).toBeLessThanOrEqual(afterwards);
  });
});
