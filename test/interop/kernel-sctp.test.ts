/**
 * The kernel's SCTP as the transport of devices, in a guest whose kernel supports it: the transport
 * on its own, unmodified programs, devices of libusrsctp as peers, and the compliance suite's
 * connections and transfers.
 *
 * If the guest does not boot, all tests are skipped, with the reason.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { patience } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { daemonEnvironment } from './kernel-peer/daemon-environment.ts';
import { compiledTest, runInGuest } from './kernel-peer/inner-suite.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_START_TIMEOUT_MS,
  type Guest,
  shellWord,
  startGuest,
} from './kernel-peer/kernel-peer.ts';

const TEST_MS = 400_000;
const SUITE_MS = 600_000;
/** Minimum number of tests of the compliance suite that connect or transfer. */
const PASSED_MIN = 50;

/** The output of `kernel-sctp-ends.js`. */
const STORY = `# messages
indications 1 1
streams 4 4
ends 127.0.0.3 7174 127.0.0.2
longest true
waits true 0
wrong 0
acknowledged true
fragmented true
shutdown: shutdown undefined, shutdown undefined
# a narrower path
longest true, taken true
abort: aborted ECONNRESET
# refusals
held: EADDRINUSE
no listener: ECONNREFUSED
another indication: EPROTO, the peer has another adaptation indication than ours: 7
strangers delivered: 0
# a peer that sends more than a message may have
too long: invalid EMSGSIZE, messages 0
# a message in parts
parts: true true
abort: aborted ECONNRESET
# a forged payload protocol
protocol 4294967295, stream 3
# an association that starts over
again: lost ECONNRESET
# in UDP, with both ends shown as they are
127.0.0.2:9899 in 9899, 127.0.0.2:9899 out 9899, 127.0.0.3:9899 in 9899, 127.0.0.3:9899 out 9899
`;

const CLI = `node ${join(repositoryRoot(), 'dist/daemon/cli/main.js')}`;

/**
 * Functions of the scripts: a daemon in the background, programs on it, and a client that retries until its
 * server listens. Starting Node takes long in the guest, so programs have the daemon's environment, from
 * `environments`.
 */
const FUNCTIONS = `
daemon() { # SOCKET WORDS..., after INSIDE='ip netns exec NAME'
  \${INSIDE:-} ${CLI} start --no-native --log-level warn --socket "$@" >$1.log 2>&1 &
  until [[ $(<$1.log) == *' is ready'* ]]; do sleep 0.2; done
}
on() { # SOCKET PROGRAM...
  (. $1.env; exec timeout 150 "\${@:2}")
}
patiently() { for i in $(seq 30); do "$@" && return; sleep 1; done; return 1; }
trap 'kill $(jobs -p)' EXIT
`;

/** Script lines that store the environments of these daemons for `on`. */
async function environments(...sockets: readonly string[]): Promise<string> {
  const line = async (socket: string) =>
    `echo ${shellWord(await daemonEnvironment(socket))} >${socket}.env`;
  return (await Promise.all(sockets.map(line))).join('\n');
}

/** The messages in a line of `decode`, after the packet's addresses. */
function messagesOf(line: string): string[] {
  const [, ends = '', text = ''] = /^(\S+ > \S+) +SCTP (.*)$/.exec(line) ?? [];
  return text
    .split('; ')
    .flatMap((chunk) => (chunk.startsWith('DATA') ? [`${ends} ${chunk}`] : []));
}

let guest: Guest;
const folder = new CommandFolder();
/** Why no guest is available. */
let obstacle: string | undefined;

describeWith(['kernel-peer', 'sctp', 'rdma-programs', 'tshark'], 'SCTP by the kernel', () => {
  beforeAll(async () => {
    try {
      await prepareKernelPeer();
      guest = await startGuest({ sctp: true, share: folder.path });
    } catch (error) {
      obstacle = `the kernel peer does not boot: ${error instanceof Error ? error.message : error}`;
      process.stderr.write(`skipped: SCTP by the kernel (${obstacle})\n`);
    }
  }, GUEST_START_TIMEOUT_MS);

  beforeEach((context) => context.skip(obstacle !== undefined, obstacle));

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  it(
    'carries messages, reports a smaller path MTU, and rejects what peers may not do [SCTP-5.1-01, SCTP-9-02, SCTP-11.1-01]',
    async () => {
      const { status, output } = await guest.runToEnd(
        `node ${compiledTest('interop/kernel-sctp-ends.js')}`,
      );
      expect(output).toBe(STORY);
      expect(status).toBe(0);
    },
    patience(TEST_MS),
  );

  it(
    'serves unmodified programs between devices of a daemon, over IPv4 and IPv6, and captures the messages that tcpdump finds',
    async () => {
      const [made, real] = [folder.file('made.pcapng'), folder.file('real.pcap')];
      const output = await guest.succeed(`${FUNCTIONS}
        s=/run/one.sock
        ip addr add fd00::2/128 dev lo; ip addr add fd00::3/128 dev lo
        ${await environments('/run/one.sock')}
        daemon $s --device a=kernel-sctp:127.0.0.2,fd00::2 --device b=kernel-sctp:127.0.0.3,fd00::3
        tcpdump -i lo -U -w ${real} ip proto 132 or ip6 proto 132 2>/dev/null & dump=$!
        ${CLI} capture --socket $s -w ${made} 2>/run/said & capture=$!
        until grep -q 'capturing to' /run/said; do sleep 0.2; done
        for ends in "127.0.0.3 127.0.0.2" "fd00::3 fd00::2"; do
          read -r server client <<<"$ends"
          on $s rping -s -a $server -C 2 & serving=$!
          patiently on $s rping -c -a $server -I $client -C 2 -V || exit
          wait $serving || exit
        done
        # An association that is not used is shut down after half a second.
        sleep 2
        kill -INT $capture; wait $capture || exit
        kill $dump; wait $dump || true
        on $s ib_write_bw -R -F -d b -n 100 -s 65536 &
        server=$!
        patiently on $s ib_write_bw -R -F -d a --source_ip 127.0.0.2 -n 100 -s 65536 127.0.0.3 || exit
        wait $server || exit
        cat /proc/net/sctp/snmp`);
      expect(output).toMatch(/^ *65536 +100 +\d/m);
      // Proves that the kernel's SCTP was used.
      expect(Number(/SctpActiveEstabs\s+(\d+)/.exec(output)?.[1])).toBeGreaterThanOrEqual(3);
      const { stdout, stderr } = await runCommand(['decode', made]);
      expect(stdout + stderr).toMatch(/\d+ SCTP packets, 0 errors/);
      const sent = (text: string) =>
        new Set((text.match(/\S+ > \S+ +SCTP .*/g) ?? []).flatMap(messagesOf));
      const found = sent(stdout);
      for (const message of [
        'Enhanced Initiate',
        'Enhanced Accept',
        'Write STag',
        'Read Request',
        'Read Response STag',
      ]) {
        expect([...found].filter((text) => text.includes(message)).length, message).toBeGreaterThan(
          1,
        );
      }
      for (const chunk of ['INIT', 'INIT ACK', 'SHUTDOWN', 'SHUTDOWN ACK', 'SHUTDOWN COMPLETE']) {
        expect(stdout).toMatch(new RegExp(`127.0.0.[23]:\\d+ +SCTP ${chunk}\\n`));
        expect(stdout).toMatch(new RegExp(`\\[fd00::[23]\\]:\\d+ +SCTP ${chunk}\\n`));
      }
      // The guest is slow, so SCTP retransmits some.
      expect(sent((await runCommand(['decode', real])).stdout)).toEqual(found);
      const fields = [
        'sctp.checksum.status',
        '_ws.malformed',
        'sctp.retransmission',
        'ip.checksum.status',
      ];
      const { stdout: dissected } = await promisify(execFile)('tshark', [
        ...[
          '-n',
          '-r',
          made,
          '-o',
          'sctp.checksum:CRC 32c',
          '-o',
          'ip.check_checksum:TRUE',
          '-T',
          'fields',
        ],
        ...['-E', 'separator=;', ...fields.flatMap((name) => ['-e', name])],
      ]);
      const rows = dissected.trimEnd().split('\n');
      expect(rows.length).toBeGreaterThanOrEqual(found.size);
      // Correct checksums, including IPv4's, and nothing else.
      expect(rows.filter((row) => row !== '1;;;1' && row !== '1;;;')).toEqual([]);
    },
    patience(TEST_MS),
  );

  it(
    'talks to devices of libusrsctp, in UDP, opened from either side',
    async () => {
      await guest.succeed(`${FUNCTIONS}
        ip netns add far
        ip link add veth0 type veth peer name veth1 netns far
        ip link set veth0 up; ip addr add 10.1.0.1/24 dev veth0
        ip -n far link set lo up; ip -n far link set veth1 up; ip -n far addr add 10.1.0.2/24 dev veth1
        sysctl -qw net.sctp.udp_port=9899
        ${await environments('/run/near.sock', '/run/far.sock')}
        daemon /run/near.sock --device a=kernel-sctp-udp:10.1.0.1
        INSIDE='ip netns exec far' daemon /run/far.sock --device b=sctp:10.1.0.2
        near() { on /run/near.sock "$@"; }
        far() { (. /run/far.sock.env; exec ip netns exec far timeout 150 "$@"); }
        for ends in "far near 10.1.0.2" "near far 10.1.0.1"; do
          read -r server client address <<<"$ends"
          $server rping -s -a $address -C 3 &
          serving=$!
          patiently $client rping -c -a $address -C 3 -V || exit
          wait $serving || exit
        done`);
    },
    patience(TEST_MS),
  );

  it(
    'passes the compliance suite’s tests of connections and transfers',
    async () => {
      const suite = compiledTest('compliance/kernel-sctp-suite.js');
      const tests = await runInGuest(guest, folder.path, [suite]);
      expect(tests.filter(({ status }) => status === 'failed')).toEqual([]);
      expect(tests.filter(({ status }) => status === 'passed').length).toBeGreaterThan(PASSED_MIN);
    },
    patience(SUITE_MS),
  );
});
