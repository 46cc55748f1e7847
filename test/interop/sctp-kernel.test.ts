/**
 * libusrsctp against Linux's SCTP, over UDP, both in a guest; tshark reads what passed between them.
 *
 * If the guest does not boot, all of it is skipped, with the reason.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { CommandFolder } from '../support/cli-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import { GUEST_START_TIMEOUT_MS, type Guest, startGuest } from './kernel-peer/kernel-peer.ts';

const MESSAGES = 100;
const ENDS = join(repositoryRoot(), 'dist/test/interop/sctp-kernel-ends.js');

/** The output of both runs: on a quiet wire, and on one with loss. */
const STORY = `# ours opens, and shuts down
kernel: up, 4 out, 4 in
kernel: adaptation 1
ours: ${MESSAGES} echoes, 0 wrong
ours: indication 1, 4 streams
kernel: shutdown
kernel: end
kernel: dry true
ours: shutdown undefined
# the kernel opens, and aborts
kernel: up, 4 out, 4 in
kernel: adaptation 1
ours: ${MESSAGES} echoes, 0 wrong
ours: indication 1, 4 streams
kernel: dry true
ours: aborted ECONNRESET
# the kernel opens without an indication
kernel: cannot start, 0 out, 0 in
kernel: error
kernel: dry false
`;

let guest: Guest;
const folder = new CommandFolder();
/** Why no guest is available. */
let obstacle: string | undefined;

describeWith(['kernel-peer', 'sctp', 'tshark'], 'SCTP with the kernel', () => {
  beforeAll(async () => {
    try {
      await prepareKernelPeer();
      guest = await startGuest({ sctp: true, share: folder.path });
    } catch (error) {
      obstacle = `the kernel peer does not boot: ${error instanceof Error ? error.message : error}`;
      process.stderr.write(`skipped: SCTP with the kernel (${obstacle})\n`);
      return;
    }
    // The kernel takes SCTP from UDP port 9899, and sends it to 9898, where ours is.
    const ports = 'sysctl -w net.sctp.udp_port=9899 net.sctp.encap_port=9898';
    expect(await guest.runToEnd(ports)).toMatchObject({ status: 0 });
  }, GUEST_START_TIMEOUT_MS);

  beforeEach((context) => context.skip(obstacle !== undefined, obstacle));

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  it('carries messages both ways with either end as the first, with indication, streams and flags [SCTP-5.1-01, SCTP-11.1-01]', async () => {
    const recording = folder.file('sctp.pcap');
    const script = `tcpdump -i lo -U -w ${recording} udp port 9899 2>/dev/null & capture=$!
        until [[ -s ${recording} ]]; do sleep 0.1; done
        node ${ENDS} ${MESSAGES}; status=$?; sleep 1; kill $capture; wait $capture; exit $status`;
    const { status, output } = await guest.runToEnd(script);
    expect(output).toBe(STORY);
    expect(status).toBe(0);

    const fields = [
      'sctp.chunk_type',
      'sctp.parameter_type',
      '_ws.malformed',
      'sctp.checksum.status',
    ];
    const { stdout } = await promisify(execFile)('tshark', [
      ...['-n', '-r', recording, '-o', 'sctp.checksum:CRC 32c', '-T', 'fields'],
      ...fields.flatMap((name) => ['-e', name]),
    ]);
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t'));
    expect(rows.length).toBeGreaterThan(MESSAGES);
    // Each packet is SCTP to tshark, undamaged and with a right checksum (1).
    expect(
      rows.filter(([chunks, , malformed, sum]) => !chunks || malformed || sum !== '1'),
    ).toEqual([]);
    // INIT and INIT ACK have the indication, 0xc006, except that of the end without one.
    const first = rows.filter(([chunks]) => chunks === '1' || chunks === '2');
    const indicated = first.filter(([, parameters]) => parameters?.includes('0xc006'));
    expect(new Set(indicated.map(([chunks]) => chunks))).toEqual(new Set(['1', '2']));
    expect(indicated.length).toBeGreaterThanOrEqual(4);
    expect(
      first.filter((row) => !indicated.includes(row)).every(([chunks]) => chunks === '1'),
    ).toBe(true);
  });

  it('does the same on a wire that loses and reorders', async () => {
    const wire = 'tc qdisc add dev lo root netem delay 2ms reorder 70% 30% loss 2%';
    const { status, output } = await guest.runToEnd(
      `${wire} && node ${ENDS} ${MESSAGES}; status=$?; tc qdisc del dev lo root; exit $status`,
    );
    expect(output).toBe(STORY);
    expect(status).toBe(0);
  });
});
