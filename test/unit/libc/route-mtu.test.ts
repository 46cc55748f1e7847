import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { routeMtu } from '#native-bridge/libc/route-mtu';
import { networkNamespace } from '#test/support/network-namespace';

/** Runs a command in a new network namespace; undefined if not permitted. */
const apart = networkNamespace('ip', 'link');

const MODULE = new URL('../../../dist/native-bridge/libc/route-mtu.js', import.meta.url);

/** Other hosts reach the addresses on `lo` through `near`, as on a router. */
const SCRIPT = `
  set -e
  ip link set lo up
  ip link add near mtu 1400 type veth peer name far
  ip address add 10.77.0.1/24 dev near
  ip address add 10.77.9.9/32 dev lo
  ip address add fd77::1/64 dev near nodad
  ip address add fd77:9::9/128 dev lo nodad
  ip link set near up
  ip link set far up
  ip route add 10.77.1.0/24 via 10.77.0.2 mtu 700
  ip route add blackhole 10.77.2.0/24
  "$0" --input-type=module -e "
    import { routeMtu } from '${MODULE.href}';
    const pairs = [
      ['10.77.0.1', '10.77.0.2'], ['10.77.9.9', '10.77.1.1'], ['10.77.9.9', '10.77.0.1'],
      ['10.77.0.1', '10.77.2.1'], ['10.77.0.1', '10.78.0.1'], ['10.77.0.3', '10.77.0.2'],
      ['fd77::1', 'fd77::2'], ['fd77:9::9', 'fd77::2'], ['fd77::1', 'fd78::1'],
    ];
    const found = ([source, destination]) => {
      try { return routeMtu(source, destination); } catch ({ code }) { return code; }
    };
    console.log(JSON.stringify(pairs.map(found)));
  "
`;

describe('the MTU of a route', () => {
  it('within the host is that of loopback', () => {
    expect(routeMtu('127.0.0.1', '127.0.0.9')).toBe(65_536);
  });

  it.skipIf(apart === undefined)(
    'is that of the interface on which packets leave (needs a network namespace)',
    () => {
      const [command = '', ...rest] = [...(apart ?? []), 'bash', '-c', SCRIPT, process.execPath];
      const { stdout, stderr } = spawnSync(command, rest, { encoding: 'utf8' });
      expect(JSON.parse(stdout || 'null'), stderr).toEqual([
        ...[1400, 1400, 65_536, 'EINVAL', 'ENETUNREACH', 'ENETUNREACH'],
        ...[1400, 1400, 'ENETUNREACH'],
      ]);
    },
  );

  it('is found between addresses only', () => {
    expect(() => routeMtu('127.0.0.1', 'no address')).toThrow('EINVAL');
  });
});
