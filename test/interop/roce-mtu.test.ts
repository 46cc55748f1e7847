/** The MTU of a RoCE port, from that of its interface. */
import { expect, it } from 'vitest';
import { RunningCommand } from '../support/cli-process.ts';
import { networkNamespace } from '../support/network-namespace.ts';
import { describeWith } from '../support/prerequisites.ts';

/** In a network namespace of our own; undefined where that is not permitted. */
const apart = networkNamespace('true');

const PREPARE = `
  ip link set lo up
  ip link add near type veth peer name far
  ip address add 10.78.0.1/24 dev near
  ip link set near up
  ip link set far up
  exec "$@"
`;

/** The script that runs in the namespace, on a daemon. */
const SCRIPT = `
  look() { ibv_devinfo -d $1 | sed -n "s/.*active_mtu:[\t ]*/$1 /p"; }
  for mtu in 1500 9000 600 100; do ip link set near mtu $mtu; look wire; done
  look local; look every
  ip link set near mtu 1500
  # The program asks the port for the maximum length of a datagram.
  ibv_ud_pingpong -d wire -g 1 -s 2048 2>&1
  # Connections within the host may use a larger MTU.
  pingpong() { ibv_rc_pingpong -d wire -g 1 -m 4096 -s 8192 -c "$@" 2> /dev/null; }
  pingpong > /dev/null &
  until report=$(pingpong 127.0.0.1); do sleep 0.1; done
  sed -n 's/.* iters in .*/ping-pong/p' <<< "$report"; wait
`;

describeWith(['rdma-programs'], 'the MTU of a RoCE port', () => {
  it.skipIf(apart === undefined)(
    'is what the interface of its address carries (needs a network namespace) [ROCE-MTU-06]',
    async () => {
      const within = [...(apart ?? []), 'sh', '-c', PREPARE, 'sh'];
      const devices = ['wire=roce:10.78.0.1', 'local=roce:127.0.0.2', 'every=roce'];
      const options = devices.flatMap((device) => ['--device', device]);
      const words = ['run', '--fresh', ...options, '--', 'bash', '-c', SCRIPT];
      const ended = await new RunningCommand(words, {}, within).end();
      expect(ended.stdout.trim().split('\n'), ended.stderr).toEqual([
        'wire 1024 (3)',
        'wire 4096 (5)',
        'wire 512 (2)',
        'wire 256 (1)',
        'local 4096 (5)',
        'every 4096 (5)',
        'Requested size larger than port MTU (1024)',
        'ping-pong',
      ]);
    },
  );
});
