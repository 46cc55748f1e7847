/**
 * The daemon against Linux's rxe, by UDP: both in one guest, which sees the host's files. rxe is in
 * the initial network namespace, which it cannot leave; the daemon has its own, at the other end of
 * a veth pair.
 *
 * If the guest does not boot, all of it is skipped, with the reason.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { datagramsOf, hasRightIcrc } from '../support/captured-datagrams.ts';
import { CommandFolder } from '../support/cli-process.ts';
import { documentedVerdicts, printedVerdicts } from '../support/conformance-table.ts';
import { docExamples } from '../support/doc-examples.ts';
import { FORGED_PORT, forgedRequest } from '../support/forged-mads.ts';
import { patience, programSeconds } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { BindClashes, kernelOutcomes, outcomesOf } from './bind-clashes.ts';
import { compileProgram } from './c-programs.ts';
import { linesOf, stepsOfChild } from './forked-child.ts';
import { daemonEnvironment } from './kernel-peer/daemon-environment.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_START_TIMEOUT_MS,
  type Guest,
  type GuestProcess,
  shellWord,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { perftestWasTooSlow, untilFast } from './perftest-patience.ts';
import { layOutSides } from './rdmacm-sides.ts';
import { dissectRoce } from './tshark-roce.ts';

const SOCKET = '/run/iwarpd/s';
/** Device and address of each side, as rxe-peer makes them. */
const SIDES = {
  ours: { device: 'roce0', address: '10.1.0.2' },
  theirs: { device: 'rxe0', address: '10.1.0.1' },
} as const;
type Side = keyof typeof SIDES;
const BOTH: readonly Side[] = ['ours', 'theirs'];
/** Index of the GID of the IPv4 address, on both sides; the IPv6 address has the next. */
const IPV4_INDEX = 1;
const IPV6_INDEX = 2;
/** rxe numbers its queue pairs from 17 on. */
const RXE_QPNS = { first: 17, count: 48 } as const;
const RPING_PORT = 7174;
const OUR_ADDRESSES: ReadonlySet<string> = new Set(['10.1.0.2', 'fd00::2']);

/**
 * rdma-core's tests with two sides. Without the test that leaves a group, which passes even if none
 * was joined.
 */
const TWO_SIDES = {
  connections: [
    'test_rdmacm_sync_traffic',
    'test_rdmacm_async_traffic',
    'test_rdmacm_async_reject_traffic',
    'test_rdmacm_async_traffic_external_qp',
    'test_rdmacm_async_udp_traffic',
    'test_rdmacm_async_read',
    'test_rdmacm_async_write',
  ],
  multicast: ['test_rdmacm_async_multicast_traffic', 'test_rdmacm_async_ex_multicast_traffic'],
} as const;

let guest: Guest;
const folder = new CommandFolder();
let daemon: GuestProcess;
/** The first words of a command that runs one side of rdma-core's tests. */
let sides: string;
/** Why no guest is available. */
let obstacle: string | undefined;
let port = 18_600;

const iwarpd = (words: string) =>
  `node ${join(repositoryRoot(), 'dist/daemon/cli/main.js')} ${words} --socket ${SOCKET}`;
const conform = `node ${join(repositoryRoot(), 'dist/daemon/cli/main.js')} conform`;
const other = (side: Side): Side => (side === 'ours' ? 'theirs' : 'ours');

/** Runs both ends; `command` gets the device and the port. Returns their output and the status. */
async function across(
  serving: Side,
  command: (device: string, port: number) => string,
): Promise<{ readonly status: number; readonly output: string }> {
  port += 1;
  const asking = other(serving);
  const server = command(SIDES[serving].device, port);
  const client = `${command(SIDES[asking].device, port)} ${SIDES[serving].address}`;
  return await guest.runToEnd(
    `across ${serving} ${port} ${shellWord(server)} ${shellWord(client)}`,
  );
}

/** A pair of programs of README, as the guest runs them. */
interface DocPair {
  readonly serving: Side;
  readonly server: string;
  readonly client: string;
}

/** README's pairs of commands at a peer with rxe and here, the server first. */
function readmeCommands(): (readonly [title: string, pair: DocPair])[] {
  const blocks = docExamples(repositoryRoot()).filter(
    ({ place, text }) => place.startsWith('README.md') && /^peer\$ .*-d rxe0/m.test(text),
  );
  return blocks.map(({ text }) => {
    const [server, client] = [...text.matchAll(/^(here|peer)\$ (.*)$/gm)];
    if (server === undefined || client === undefined) throw new Error('README lacks an end');
    const serving: Side = server[1] === 'here' ? 'ours' : 'theirs';
    const typed = (line: string) =>
      line
        .replace(/^iwarpd(?= )/, `node ${join(repositoryRoot(), 'dist/daemon/cli/main.js')}`)
        .replace('192.0.2.7', SIDES.theirs.address)
        .replace('192.0.2.8', SIDES.ours.address)
        // A thousand messages of 64 KiB are many for an emulated processor.
        .replace('ib_send_bw', 'ib_send_bw -n 100');
    const pair = { serving, server: typed(server[2] ?? ''), client: typed(client[2] ?? '') };
    return [`${server[0]}, ${client[0]}`, pair] as const;
  });
}

async function boot(): Promise<void> {
  try {
    await prepareKernelPeer();
    guest = await startGuest({ rxe: true, share: folder.path });
  } catch (error) {
    obstacle = `the kernel peer does not boot: ${error instanceof Error ? error.message : error}`;
    process.stderr.write(`skipped: RoCE with rxe (${obstacle})\n`);
    return;
  }
  await guest.succeed('rxe-peer');
  daemon = guest.run(`ip netns exec ours ${iwarpd('start --device roce0=roce')}`);
  await daemon.waitFor(/ready/);
  const exports = await daemonEnvironment(SOCKET);
  await guest.succeed(`echo ${shellWord(exports)} >/run/ours-environment`);
}

describeWith(['kernel-peer', 'perftest', 'pyverbs', 'tshark'], 'RoCE with rxe', () => {
  beforeAll(async () => {
    sides = layOutSides(folder.path);
    await boot();
  }, GUEST_START_TIMEOUT_MS);

  beforeEach((context) => context.skip(obstacle !== undefined, obstacle));

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  describe.each(BOTH)('the server is %s', (serving) => {
    it.each(['rc', 'uc', 'ud', 'srq'])('ibv_%s_pingpong', async (kind) => {
      const size = kind === 'ud' ? '-s 1000' : '-s 3000 -m 1024';
      // With several queue pairs, the end that finishes first leaves the other's requests
      // unanswered.
      const words = `-g ${IPV4_INDEX} -c -n 10 ${size}${kind === 'srq' ? ' -q 1' : ''}`;
      const { status, output } = await across(
        serving,
        (device, at) => `ibv_${kind}_pingpong -d ${device} -p ${at} ${words}`,
      );
      expect(status, output).toBe(0);
      expect(output.match(/10 iters in/g), output).toHaveLength(2);
    });

    it.each([
      'ib_write_bw -c RC',
      'ib_write_bw -c RC -b',
      'ib_write_lat -c RC',
      'ib_write_bw -c UC',
      'ib_write_lat -c UC',
      'ib_read_bw -c RC -b',
      'ib_read_lat -c RC',
      'ib_send_bw -c RC -b',
      'ib_send_bw -c RC --use-srq -q 4',
      'ib_send_lat -c RC',
      'ib_send_bw -c UC',
      'ib_send_lat -c UC',
      'ib_send_bw -c UD',
      'ib_send_lat -c UD',
      'ib_atomic_bw -b -A FETCH_AND_ADD',
      'ib_atomic_lat -A CMP_AND_SWAP',
    ])('%s', async (command) => {
      const size = command.includes('atomic') ? '' : `-s ${command.includes('UD') ? 999 : 4099}`;
      await untilFast(async () => {
        const ended = await across(
          serving,
          (device, at) => `${command} -d ${device} -x ${IPV4_INDEX} -p ${at} -n 10 -F ${size}`,
        );
        if (perftestWasTooSlow(ended)) return ended.output;
        expect(ended.status, ended.output).toBe(0);
        return undefined;
      });
    });
  });

  describe.each(BOTH)('by rdma_cm, the server is %s', (serving) => {
    it.each([
      ['rping', '-s -a ADDRESS -C 3', '-c -a ADDRESS -C 3 -V -v', /client: ping data: rdma-ping-2/],
      ['ucmatose', '-b ADDRESS -C 2 -S 3000', '-s ADDRESS -C 2 -S 3000', /client: test complete/],
      ['rdma_client', '', '-s ADDRESS', /client: rdma_client: end 0/],
      [
        'riostream',
        '-b ADDRESS -C 20 -S 4096 -I 2',
        '-s ADDRESS -C 20 -S 4096 -I 2',
        /client: custom +4k/,
      ],
      ['udaddy', '-b ADDRESS -C 2 -S 900', '-s ADDRESS -C 2 -S 900', /client: test complete/],
    ] as const)('%s', async (name, server, client, shown) => {
      const script = ([server, client] as const)
        .map((words) => words.replace('ADDRESS', SIDES[serving].address))
        .map((words, end) => `${end === 0 ? name.replace('client', 'server') : name} ${words}`)
        .map(shellWord);
      const { status, output } = await guest.runToEnd(`across-cm ${serving} ${script.join(' ')}`);
      expect(status, output).toBe(0);
      expect(output).toMatch(shown);
      expect(output).not.toContain('data mismatch');
    });

    // Its server listens for the queue pair only after a first connection, and the kernel's client
    // does not wait for that.
    it('ib_send_bw -R', async () => {
      port += 1;
      const words = `-R -x ${IPV4_INDEX} -p ${port} -n 10 -F -s 4099`;
      const end = (side: Side) => `ib_send_bw ${words} -d ${SIDES[side].device}`;
      const script = [end(serving), `${end(other(serving))} ${SIDES[serving].address}`];
      await untilFast(async () => {
        const ended = await guest.runToEnd(
          `across-cm ${serving} ${script.map(shellWord).join(' ')}`,
        );
        if (perftestWasTooSlow(ended)) return ended.output;
        expect(ended.status, ended.output).toBe(0);
        expect(ended.output).toMatch(/client: .*rdma_cm QPs\s+: ON/);
        return undefined;
      });
    });

    it.each(['connections', 'multicast'] as const)("rdma-core's tests of %s", async (theme) => {
      port += 1;
      const names = TWO_SIDES[theme];
      const end = (side: Side, role: string) => {
        const { device, address } = SIDES[side];
        const addresses = `${address} ${SIDES[serving].address}`;
        return `${sides} ${role} ${device} ${addresses} ${port} ${names.join(' ')}`;
      };
      const words = [end(serving, 'passive'), end(other(serving), 'active')].map(shellWord);
      const { status, output } = await guest.runToEnd(
        `across ${serving} ${port} ${words.join(' ')}`,
      );
      expect(status, output).toBe(0);
      for (const end of ['server', 'client']) {
        expect(output).toContain(`${end}: Ran ${names.length} tests`);
      }
      expect(output).not.toContain('skipped');
    });

    it('mckey [ROCE-MC-05]', async () => {
      const group = '-m 230.1.0.9 -C 3 -b';
      const [receiver, sender] = [SIDES[serving].address, SIDES[other(serving)].address];
      // Messages sent before the other has joined are lost.
      const script = [
        `rm -f /run/received; mckey ${group} ${receiver} && touch /run/received`,
        `until [[ -e /run/received ]]; do mckey ${group} ${sender} -s || exit; sleep 1; done`,
      ].map(shellWord);
      const { status, output } = await guest.runToEnd(`across-cm ${serving} ${script.join(' ')}`);
      expect(status, output).toBe(0);
      expect(output).toMatch(/server: test complete/);
    });
  });

  describe('a program that checks every byte', () => {
    let program: string;

    beforeAll(() => {
      program = compileProgram('roce-ends', [], folder.file('roce-ends'));
    });

    /** Both sides act as requester; the server's side matters only to the control connection. */
    async function ends(serving: Side, index: number, ...more: string[]): Promise<string> {
      port += 1;
      const end = (side: Side) => `${program} ${SIDES[side].device} ${index} ${port}`;
      const client = [end(other(serving)), SIDES[serving].address, ...more].join(' ');
      const words = [serving, String(port), shellWord(end(serving)), shellWord(client)];
      const recorder = `FILTER='udp port 4791' record ${recording(serving)} veth0`;
      return await guest.succeed(`${recorder} across ${words.join(' ')}`);
    }

    /** The packets of the last run with this server. */
    const recording = (serving: Side) => folder.file(`${serving}.pcap`);

    it.each([
      ['IPv4', 'ours', IPV4_INDEX],
      ['IPv6', 'theirs', IPV6_INDEX],
    ] as const)(
      'RC at three path MTUs, UC and UD over %s [ROCE-MTU-02, ROCE-ORD-01, ROCE-UC-01, ROCE-UD-01]',
      async (_, serving, index) => {
        const output = await ends(serving, index);
        const shapes = ['RC, MTU 256', 'RC, MTU 1024', 'RC, MTU 4096', 'UC', 'UD'];
        for (const side of ['server', 'client']) {
          for (const shape of shapes) expect(output).toContain(`${side}: ${shape}: as sent\n`);
        }
      },
    );

    it.each(BOTH)(
      'whose packets are well formed and have right ICRCs (server: %s) [ROCE-UDP-01, ROCE-UDP-03, ROCE-ICRC-01]',
      async (serving) => {
        const path = recording(serving);
        const datagrams = datagramsOf(path);
        const rows = await dissectRoce(path, true);
        const ours = rows.flatMap((row, index) => {
          const sent = [row['ip.src'], row['ipv6.src']].some((address) =>
            OUR_ADDRESSES.has(address),
          );
          return sent ? [{ ...row, bytes: datagrams[index] ?? new Uint8Array() }] : [];
        });
        expect(ours.length).toBeGreaterThan(500);
        expect(ours.filter(({ complaint }) => complaint !== '')).toEqual([]);
        expect(ours.filter(({ bytes }) => !hasRightIcrc(bytes))).toEqual([]);
      },
    );

    it.each([
      'loss 2%',
      'duplicate 10%',
      'delay 1ms reorder 98%',
      'delay 1ms reorder 98% loss 1% duplicate 3%',
    ])('RC, with %s both ways [ROCE-RTY-08, ROCE-DUP-02]', async (how) => {
      await guest.succeed(`damage ${how}`);
      try {
        const output = await ends('theirs', IPV4_INDEX, 'reliable');
        expect(output.match(/as sent/g), output).toHaveLength(6);
      } finally {
        await guest.succeed('damage');
      }
    });
  });

  // The kernel ignores a query for a connection that it still has.
  it('rping, while requests are forged in the name of its client [IBCM-STALE-02, IBCM-STALE-03]', async () => {
    const [{ address: ours }, { address: theirs }] = [SIDES.ours, SIDES.theirs];
    const qpns = Array.from({ length: RXE_QPNS.count }, (_, index) => RXE_QPNS.first + index);
    const requests = qpns.map((qpn) => forgedRequest([theirs, ours], RPING_PORT, qpn));
    const file = folder.file('forged');
    writeFileSync(file, Buffer.concat(requests));
    const forge = [
      'import socket',
      'forger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)',
      `forger.bind(("${theirs}", ${FORGED_PORT}))`,
      `bytes = open("${file}", "rb").read()`,
      `size = len(bytes) // ${requests.length}`,
      `for at in range(0, len(bytes), size): forger.sendto(bytes[at:at + size], ("${ours}", 4791))`,
    ].join('\n');
    const pings = '$(wc -l </run/pings)';
    const until = (condition: string) => `until ${condition}; do sleep 0.2; done`;
    const client = [
      `stdbuf -oL rping -c -v -a ${ours} >/run/pings & pinger=$!`,
      until(`((${pings} > 3)) || ! kill -0 $pinger`),
      `before=${pings}; python3 -c ${shellWord(forge)} || exit`,
      until(`((${pings} > before + 10)) || ! kill -0 $pinger`),
      // This fails if it has ended.
      'kill $pinger; status=$?; touch /run/forgery-over; exit $status',
    ];
    const server = [
      `rm -f /run/forgery-over; rping -s -P -a ${ours} & server=$!`,
      until('[[ -e /run/forgery-over ]]'),
      'kill -9 $server',
    ];
    const script = [server, client].map((lines) => shellWord(lines.join('\n')));
    const { status, output } = await guest.runToEnd(`across-cm ours ${script.join(' ')}`);
    expect(status, output).toBe(0);
  });

  it.each(['alive', 'gone'])(
    'a forked child of a program on rxe whose parent is %s',
    async (parent) => {
      port += 1;
      const program = compileProgram('forked-child', ['-lrdmacm'], folder.file('forked-child'));
      const words = `timeout ${programSeconds()} ${program} ${SIDES.theirs.address} ${port} ${parent}`;
      expect(linesOf(await guest.succeed(words)).child).toEqual(stepsOfChild('roce'));
    },
  );

  it("lets rdma_cm ids share ports as the table of the daemon's tests says for rxe", async () => {
    const second = '10.1.0.9';
    const clashes = new BindClashes(folder.path);
    const addresses = [SIDES.theirs.address, second, 'fd00::1'] as const;
    const output = await guest.succeed(
      [
        `ip addr add ${second}/24 dev veth0`,
        `timeout ${programSeconds()} ${clashes.command(addresses, 20_000)}`,
        'status=$?',
        `ip addr del ${second}/24 dev veth0`,
        'exit $status',
      ].join('\n'),
    );
    expect(outcomesOf(output)).toEqual(kernelOutcomes('roce'));
  });

  // The addresses of the document are those of any network; only the typed commands count.
  it.each(readmeCommands())("README's commands: %s", async (_, { serving, server, client }) => {
    port += 1;
    const words = [serving, '18515', shellWord(server), shellWord(client)];
    await untilFast(async () => {
      const { status, output } = await guest.runToEnd(`across ${words.join(' ')}`);
      if (perftestWasTooSlow({ status, output })) return output;
      expect(status, output).toBe(0);
      expect(output).toMatch(/client: +65536 +100 +[\d.]+ +[\d.]+/);
      return undefined;
    });
  });

  it('shuts down cleanly', async () => {
    await guest.succeed(`kill $(sed -n 's/.*"pid":\\([0-9]*\\).*/\\1/p' ${SOCKET}.run)`);
    expect(await daemon.exit, daemon.output).toBe(0);
  });

  // The daemon has ended, so the UDP port of its side is free.
  it(
    'rxe matches daemon/CONFORMANCE.md in each row of conform',
    async () => {
      port += 1;
      const path = compileProgram('conform-target', ['-lrdmacm'], folder.file('conform-target'));
      const target = guest.run(`theirs ${path} ${SIDES.theirs.address} ${port}`);
      await target.waitFor(/ready/);
      const words = `--peer ${SIDES.theirs.address} --from ${SIDES.ours.address} -p ${port} --over roce`;
      const command = `${conform} ${words} --patience ${patience(3000)} --json`;
      // A file of the host: the console mixes output with the kernel's lines.
      const results = folder.file('conform.json');
      const { output } = await guest.runToEnd(`ip netns exec ours ${command} >${results}`);
      expect(existsSync(results), output).toBe(true);
      const json = readFileSync(results, 'utf8');
      expect(json, output).not.toBe('');
      const { verdicts, details } = printedVerdicts(json);
      expect(verdicts, details.join('\n')).toEqual(documentedVerdicts('RoCEv2', 'Linux'));
      await guest.succeed(`kill $(pidof conform-target)`);
      await target.exit;
    },
    patience(240_000),
  );
});
