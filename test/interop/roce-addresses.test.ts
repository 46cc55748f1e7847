/**
 * Addresses of the host that come and go while a daemon runs: the GID table of its RoCE device, the
 * device tree, the event, and reachability. Runs in its own network namespace.
 */
import { afterEach, expect, it } from 'vitest';
import { CommandFolder, type Finished, RunningCommand } from '../support/cli-process.ts';
import { networkNamespace } from '../support/network-namespace.ts';
import { describeWith } from '../support/prerequisites.ts';

const FIRST = '0000:0000:0000:0000:0000:ffff:c612:0901';
const SECOND = '0000:0000:0000:0000:0000:ffff:c612:0902';
const THIRD = '0000:0000:0000:0000:0000:ffff:c612:0903';
const NONE = '0000:0000:0000:0000:0000:0000:0000:0000';

/** Before the daemon starts. */
const PREPARE = 'ip link set lo up && ip address add 198.18.9.1/32 dev lo && exec "$@"';

/**
 * `gids` shows entries 1 to 3, `await N` waits for N events. In the lasting pair, the end whose
 * Send was in flight when the address was removed fails; the other may wait for it forever.
 */
const SCRIPT = `
stdbuf -oL ibv_asyncwatch -d roce0 > "$0" & watch=$!
port=/sys/class/infiniband/roce0/ports/1
gids() { for index in 1 2 3; do echo "$1 $index" $(cat $port/gids/$index $port/gid_attrs/ndevs/$index 2> /dev/null); done; }
await() { for try in $(seq 200); do [ "$(grep -c "$1" "$0")" = $2 ] && return; sleep 0.05; done; echo "no event"; }
serve() {
  "$@" > "$0.server" 2>&1 & server=$!
  for try in $(seq 100); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; kill -0 $server 2> /dev/null || break; sleep 0.05; done
}
pingpong() {
  serve ibv_ud_pingpong -g $1 -n 10 -e
  ibv_ud_pingpong -g $1 -n 10 -e 127.0.0.1 > /dev/null 2>&1 && wait $server && echo "ping-pong $1" || { kill $server 2> /dev/null; echo "no ping-pong $1"; }
}
await 'async event FD' 1
gids before
ip address add 198.18.9.2/32 dev lo; await 'GID.*port 1' 1; gids added; pingpong 2
serve ibv_rc_pingpong -g 2 -n 100000000 -e; lasting=$server
ibv_rc_pingpong -g 2 -n 100000000 -e 127.0.0.1 > "$0.client" 2>&1 & client=$!
ip address add 198.18.9.3/32 dev lo; await 'GID.*port 1' 2
ip address del 198.18.9.2/32 dev lo; await 'GID.*port 1' 3; gids removed
for try in $(seq 100); do grep -oh 'retry counter exceeded' "$0.client" "$0.server" | sort -u | grep . && break; sleep 0.05; done
kill $client $lasting 2> /dev/null; wait $client $lasting 2> /dev/null
pingpong 2; pingpong 3
sleep 1.5; await 'GID.*port 1' 3
kill $watch; wait $watch 2> /dev/null; exit 0`;

/** In a namespace of our own; undefined where that is not permitted. */
const apart = networkNamespace('true');

const folder = new CommandFolder();

afterEach(() => folder.clean());

describeWith(['rdma-programs'], 'a RoCE device with all addresses of the host', () => {
  it.skipIf(apart === undefined)(
    'follows them, and notifies programs (needs a network namespace) [IBV-AE-07, IBV-GID-01]',
    async () => {
      const within = [...(apart ?? []), 'sh', '-c', PREPARE, 'sh'];
      const words = ['run', '--fresh', '--', 'bash', '-c', SCRIPT, folder.file('watch')];
      const ended: Finished = await new RunningCommand(words, {}, within).end();
      expect(ended.stdout.trim().split('\n'), ended.stderr).toEqual([
        `before 1 ${FIRST} lo`,
        `before 2 ${NONE}`,
        `before 3 ${NONE}`,
        `added 1 ${FIRST} lo`,
        `added 2 ${SECOND} lo`,
        `added 3 ${NONE}`,
        'ping-pong 2',
        `removed 1 ${FIRST} lo`,
        `removed 2 ${NONE}`,
        `removed 3 ${THIRD} lo`,
        'retry counter exceeded',
        'no ping-pong 2',
        'ping-pong 3',
      ]);
    },
  );
});
