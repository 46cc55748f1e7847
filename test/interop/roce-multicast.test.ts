/**
 * Multicast between hosts: mckey of librdmacm on two daemons, each in its own network namespace, with
 * a veth pair between them.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { CommandFolder, RunningCommand } from '../support/cli-process.ts';
import { networkNamespace } from '../support/network-namespace.ts';
import { programSeconds } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';

const folder = new CommandFolder();

afterEach(() => folder.clean());

/** In a network namespace of our own; undefined where that is not permitted. */
const apart = networkNamespace('true');

/** Makes a second namespace, and a veth pair into it; then runs its arguments. */
const PREPARE = `
  set -e
  ip link set lo up
  unshare --net sleep 80 & inner=$!
  trap 'kill $inner' EXIT
  until [ "$(readlink /proc/$inner/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
  within() { nsenter --net=/proc/$inner/ns/net "$@"; }
  ip link add near type veth peer name far netns $inner
  ip address add 10.77.0.1/24 dev near
  ip address add fd77::1/64 dev near nodad
  ip link set near up
  within ip link set lo up
  within ip address add 10.77.0.2/24 dev far
  within ip address add fd77::2/64 dev far nodad
  within ip link set far up
`;

describeWith(['rdma-programs'], 'mckey between two hosts', () => {
  describe.each([
    ['IPv4', '10.77.0.1', '10.77.0.2', '239.77.3.1'],
    ['IPv6', 'fd77::1', 'fd77::2', 'ff0e::77:3:1'],
  ])('over %s', (_, near, far, group) => {
    it.skipIf(apart === undefined)(
      'receives from the group, and leaves it (needs a network namespace)',
      async () => {
        const mckey = `mckey -m ${group} -C 20 -S 1000`;
        const script = `${PREPARE}
          within timeout ${programSeconds()} "$@" run --network host --device roce0=roce:${far} -- \
            ${mckey} -b ${far} > "$0.received" 2>&1 & receiver=$!
          for look in $(seq 400); do
            within ip maddress show dev far | grep -q " ${group}" && break
            sleep 0.1
          done
          timeout ${programSeconds()} "$@" run --network host --device roce0=roce:${near} -- ${mckey} -b ${near} -s
          wait $receiver; status=$?
          cat "$0.received"
          within ip maddress show dev far | grep " ${group}" && exit 3
          exit $status`;
        const within = [...(apart ?? []), 'bash', '-c', script, folder.file('mckey')];
        const ended = await new RunningCommand([], {}, within).end();
        expect([ended.status, ended.stdout], ended.stderr).toEqual([0, expect.anything()]);
        expect(ended.stdout.match(/return status 0/g), ended.stdout).toHaveLength(2);
        expect(ended.stdout).toContain('receiving data transfers');
      },
    );
  });
});
