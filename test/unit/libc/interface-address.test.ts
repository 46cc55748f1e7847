import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { interfaceWith } from '#native-bridge/libc/interface-address';
import { networkNamespace } from '#test/support/network-namespace';

/** Runs a command in a new network namespace; undefined if not permitted. */
const apart = networkNamespace('ip', 'link');

const MODULE = new URL('../../../dist/native-bridge/libc/interface-address.js', import.meta.url);

/** `near` is up, but its peer is not, so it has no carrier. */
const SCRIPT = `
  set -e
  ip link add near type veth peer name far
  ip address add 10.77.0.1/24 dev near label near:alias
  ip address add 10.77.1.1/24 dev far
  ip address add fd77::1/64 dev near nodad
  ip link set near up
  "$0" --input-type=module -e "
    import { networkInterfaces } from 'node:os';
    import { interfaceWith } from '${MODULE.href}';
    const addresses = ['10.77.0.1', 'fd77::1', '10.77.1.1', '10.77.0.2', 'fd77::2'];
    console.log(JSON.stringify([networkInterfaces(), addresses.map((each) => interfaceWith(each) ?? 'none')]));
  "
`;

describe('the interface with an address', () => {
  it('is found for addresses of the loopback interface, and for no other', () => {
    expect(interfaceWith('127.0.0.1')).toBe('lo');
    expect(interfaceWith('192.0.2.1')).toBeUndefined();
    expect(interfaceWith('2001:db8::1')).toBeUndefined();
  });

  it.skipIf(apart === undefined)(
    'is found while it has no carrier (needs a network namespace)',
    () => {
      const [command = '', ...rest] = [...(apart ?? []), 'bash', '-c', SCRIPT, process.execPath];
      const { stdout, stderr } = spawnSync(command, rest, { encoding: 'utf8' });
      expect(JSON.parse(stdout || 'null'), stderr).toEqual([
        {},
        ['near', 'near', 'far', 'none', 'none'],
      ]);
    },
  );

  it('is looked up by address only', () => {
    expect(() => interfaceWith('no address')).toThrow('EINVAL');
  });
});
