/**
 * The daemon against Linux's rxe, by UDP: rxe in a guest, the daemon and its programs at the guest's
 * neighbour.
 *
 * If there is no guest or no neighbour, all of it is skipped, with the reason.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { datagramsOf, hasRightIcrc } from '../support/captured-datagrams.ts';
import { CommandFolder, RunningCommand, runCommand } from '../support/cli-process.ts';
import { documentedVerdicts, printedVerdicts } from '../support/conformance-table.ts';
import { docExamples } from '../support/doc-examples.ts';
import { FORGED_PORT, forgedRequest } from '../support/forged-mads.ts';
import { patience, programSeconds, quiet } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { BindClashes, kernelOutcomes, outcomesOf } from './bind-clashes.ts';
import { compileProgram } from './c-programs.ts';
import { linesOf, stepsOfChild } from './forked-child.ts';
import { daemonEnvironment } from './kernel-peer/daemon-environment.ts';
import {
  GUEST_START_TIMEOUT_MS,
  type Guest,
  type GuestProcess,
  shellWord,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { Neighbour } from './kernel-peer/neighbour.ts';
import { type End, type EndedPair, runCmPair, runPair } from './kernel-peer/pairs.ts';
import { perftestWasTooSlow, untilFast } from './perftest-patience.ts';
import { layOutSides } from './rdmacm-sides.ts';
import { dissectRoce } from './tshark-roce.ts';

/** Device and address of each side. */
const SIDES = {
  ours: { device: 'roce0', address: '10.1.0.2' },
  theirs: { device: 'rxe0', address: '10.1.0.1' },
} as const;
type Side = keyof typeof SIDES;
const BOTH: readonly Side[] = ['ours', 'theirs'];
/** Index of the GID of the IPv4 address, on both sides; the IPv6 address has the next. */
const IPV4_INDEX = 1;
const IPV6_INDEX = 2;
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
let neighbour: Neighbour;
const folder = new CommandFolder();
let daemon: RunningCommand;
/** Commands for the shell that set a program up for the daemon. */
let environment: string;
/** The first words of a command that runs one side of rdma-core's tests. */
let sides: string;
/** Why no guest is available. */
let obstacle: string | undefined;
let port = 18_600;

const other = (side: Side): Side => (side === 'ours' ? 'theirs' : 'ours');

/** A command on one side. */
function endOf(side: Side, command: string): End {
  return side === 'ours'
    ? { place: neighbour, command: `${environment} ${command}` }
    : { place: guest, command };
}

/** A server on one side, which listens on a TCP port, and its client on the other. */
async function across(
  serving: Side,
  at: number,
  server: string,
  client: string,
): Promise<EndedPair> {
  return await runPair(at, endOf(serving, server), endOf(other(serving), client));
}

/** As `across`, for programs that connect by rdma_cm. */
async function acrossByCm(serving: Side, server: string, client: string): Promise<EndedPair> {
  return await runCmPair(endOf(serving, server), endOf(other(serving), client));
}

/** The same command on both sides; `command` gets the device and the port. */
async function onBoth(
  serving: Side,
  command: (device: string, port: number) => string,
): Promise<EndedPair> {
  port += 1;
  const [server, client] = [SIDES[serving], SIDES[other(serving)]];
  const asking = `${command(client.device, port)} ${server.address}`;
  return await across(serving, port, command(server.device, port), asking);
}

/** A pair of programs of README, as they run here. */
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
    neighbour = await Neighbour.open();
    guest = await startGuest({ rxe: true, share: folder.path, wire: neighbour });
  } catch (error) {
    obstacle = `no kernel peer: ${error instanceof Error ? error.message : error}`;
    process.stderr.write(`skipped: RoCE with rxe (${obstacle})\n`);
    return;
  }
  await guest.succeed('rxe-peer');
  const socket = folder.file('s');
  const words = ['start', '--socket', socket, '--device', 'roce0=roce'];
  daemon = new RunningCommand(words, {}, neighbour.within);
  await daemon.until(/ready/);
  environment = await daemonEnvironment(socket);
}

describeWith(['kernel-peer', 'perftest', 'pyverbs', 'tshark'], 'RoCE with rxe', () => {
  beforeAll(async () => {
    sides = layOutSides(folder.path);
    await boot();
  }, GUEST_START_TIMEOUT_MS);

  beforeEach((context) => context.skip(obstacle !== undefined, obstacle));

  afterAll(async () => {
    await daemon?.kill();
    await guest?.stop();
    await neighbour?.close();
    await folder.clean();
  });

  describe.each(BOTH)('the server is %s', (serving) => {
    it.each(['rc', 'uc', 'ud', 'srq'])('ibv_%s_pingpong', async (kind) => {
      const size = kind === 'ud' ? '-s 1000' : '-s 3000 -m 1024';
      // With several queue pairs, the end that finishes first leaves the other's requests
      // unanswered.
      const words = `-g ${IPV4_INDEX} -c -n 10 ${size}${kind === 'srq' ? ' -q 1' : ''}`;
      const { status, output } = await onBoth(
        serving,
        (device, at) => `ibv_${kind}_pingpong -d ${device} -p ${at} ${words}`,
      );
      expect(status, output).toBe(0);
      expect(output.match(/10 iters in/g), output).toHaveLength(2);
    });

    // Ours leave as segments of one message, and the kernel cuts it.
    it('ibv_rc_pingpong with messages of 59 packets', async () => {
      const { status, output } = await onBoth(
        serving,
        (device, at) =>
          `ibv_rc_pingpong -d ${device} -p ${at} -g ${IPV4_INDEX} -c -n 10 -s 60000 -m 1024`,
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
      // Cycles, since it measures the length of a microsecond for a quarter of a second.
      const unit = command.includes('_lat') ? '-C' : '';
      await untilFast(async () => {
        const ended = await onBoth(
          serving,
          (device, at) =>
            `${command} -d ${device} -x ${IPV4_INDEX} -p ${at} -n 10 -F ${size} ${unit}`,
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
      const typed = (words: string) => words.replace('ADDRESS', SIDES[serving].address);
      const { status, output } = await acrossByCm(
        serving,
        `${name.replace('client', 'server')} ${typed(server)}`,
        `${name} ${typed(client)}`,
      );
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
      const client = `${end(other(serving))} ${SIDES[serving].address}`;
      await untilFast(async () => {
        const ended = await acrossByCm(serving, end(serving), client);
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
      const { status, output } = await across(
        serving,
        port,
        end(serving, 'passive'),
        end(other(serving), 'active'),
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
      port += 1;
      const received = folder.file(`received-${port}`);
      const { status, output } = await acrossByCm(
        serving,
        `mckey ${group} ${receiver} && touch ${received}`,
        `until [[ -e ${received} ]]; do mckey ${group} ${sender} -s || exit; sleep 1; done`,
      );
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
      const { status, output } = await across(serving, port, end(serving), client);
      expect(status, output).toBe(0);
      return output;
    }

    /** The packets of the run with this server. */
    const recording = (serving: Side) => folder.file(`${serving}.pcap`);

    async function recorded<T>(path: string, action: () => Promise<T>): Promise<T> {
      const dumpcap = `exec dumpcap -P -i ${neighbour.tap} -f 'udp port 4791' -w ${path}`;
      const recorder = neighbour.run(dumpcap);
      await recorder.waitFor(/^File: /m);
      try {
        return await action();
      } finally {
        // The kernel hands packets over up to a second late.
        await quiet(1000);
        recorder.kill();
        await recorder.exit;
      }
    }

    it.each([
      ['IPv4', 'ours', IPV4_INDEX],
      ['IPv6', 'theirs', IPV6_INDEX],
    ] as const)(
      'RC at three path MTUs, UC and UD over %s [ROCE-MTU-02, ROCE-ORD-01, ROCE-UC-01, ROCE-UD-01]',
      async (_, serving, index) => {
        const output = await recorded(recording(serving), () => ends(serving, index));
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
        const rows = await dissectRoce(path);
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
    const [{ address: ours }, { address: theirs, device }] = [SIDES.ours, SIDES.theirs];
    const server = neighbour.run(`${environment} exec stdbuf -oL rping -s -P -d -a ${ours}`);
    try {
      await server.waitFor(/rdma_listen/);
      const client = guest.run(`exec rping -c -v -a ${ours}`);
      await client.waitFor(/rdma-ping-3/);
      const pairs = await guest.succeed(`rdma resource show qp link ${device}`);
      const qpn = Number(/lqpn (\d+) .* comm rping/.exec(pairs)?.[1]);
      const file = folder.file('forged');
      writeFileSync(file, forgedRequest([theirs, ours], RPING_PORT, qpn));
      const forge = [
        'import socket',
        'forger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)',
        `forger.bind(("${theirs}", ${FORGED_PORT}))`,
        `forger.sendto(open("${file}", "rb").read(), ("${ours}", 4791))`,
      ].join('\n');
      await guest.succeed(`python3 -c ${shellWord(forge)}`);
      const { length } = client.output.match(/rdma-ping/g) ?? [];
      await client.waitFor(new RegExp(`rdma-ping-${length + 10}:`));
      client.kill();
      await client.exit;
    } finally {
      server.kill();
      await server.exit;
    }
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
        `ip addr add ${second}/24 dev eth1`,
        `timeout ${programSeconds()} ${clashes.command(addresses, 20_000)}`,
        'status=$?',
        `ip addr del ${second}/24 dev eth1`,
        'exit $status',
      ].join('\n'),
    );
    expect(outcomesOf(output)).toEqual(kernelOutcomes('roce'));
  });

  it('raises the same events as rxe when a link goes down and comes up', async () => {
    // Linux removes the interface's IPv6 addresses with the link, and so their GIDs.
    const [remove, restore] = [
      'ip -6 addr del fd00::1/64 dev eth1',
      `ip -6 addr replace fd00::1/64 dev eth1 nodad
       ip neigh replace 10.1.0.2 dev eth1 lladdr 02:00:00:00:00:02 nud permanent
       ip -6 neigh replace fd00::2 dev eth1 lladdr 02:00:00:00:00:02 nud permanent`,
    ];
    const change: Record<Side, (to: string) => Promise<unknown>> = {
      theirs: (to) => guest.succeed(`ip link set eth1 ${to}`),
      ours: (to) => runCommand(['rail', to, SIDES.ours.device, '--socket', folder.file('s')]),
    };
    const running: GuestProcess[] = [];
    onTestFinished(async () => {
      for (const watching of running) watching.kill();
      await change.ours('up');
      await guest.succeed(`ip link set eth1 up; ${restore}`);
    });
    await guest.succeed(remove);
    const watch = (side: Side): GuestProcess => {
      const { place, command } = endOf(side, `ibv_asyncwatch -d ${SIDES[side].device}`);
      return place.run(command);
    };
    const events: Partial<Record<Side, string[]>> = {};
    for (const side of BOTH) {
      const watching = watch(side);
      running.push(watching);
      await watching.waitFor(/async event FD/);
      await change[side]('down');
      await watching.waitFor(/PORT_ERR/);
      await change[side]('up');
      await watching.waitFor(/PORT_ACTIVE/);
      watching.kill();
      await watching.exit;
      running.pop();
      events[side] = watching.output.match(/event_type.*/g) ?? [];
    }
    expect(events.ours).toEqual(events.theirs);
    expect(events.theirs).toHaveLength(2);
  });

  // The addresses of the document are those of any network; only the typed commands count.
  it.each(readmeCommands())("README's commands: %s", async (_, { serving, server, client }) => {
    await untilFast(async () => {
      const { status, output } = await across(serving, 18_515, server, client);
      if (perftestWasTooSlow({ status, output })) return output;
      expect(status, output).toBe(0);
      expect(output).toMatch(/client: +65536 +100 +[\d.]+ +[\d.]+/);
      return undefined;
    });
  });

  it('shuts down cleanly', async () => {
    daemon.signal('SIGTERM');
    const { status, stderr } = await daemon.end();
    expect(status, stderr).toBe(0);
  });

  // The daemon has ended, so the UDP port of its side is free.
  it(
    'rxe matches daemon/CONFORMANCE.md in each row of conform',
    async () => {
      port += 1;
      const path = compileProgram('conform-target', ['-lrdmacm'], folder.file('conform-target'));
      const target = guest.run(`${path} ${SIDES.theirs.address} ${port}`);
      await target.waitFor(/ready/);
      const ends = `--peer ${SIDES.theirs.address} --from ${SIDES.ours.address} -p ${port}`;
      const words = `conform ${ends} --over roce --patience ${patience(3000)} --json`.split(' ');
      const { stdout, stderr } = await runCommand(words, {}, neighbour.within);
      expect(stdout, stderr).not.toBe('');
      const { verdicts, details } = printedVerdicts(stdout);
      expect(verdicts, details.join('\n')).toEqual(documentedVerdicts('RoCEv2', 'Linux'));
      target.kill();
      await target.exit;
    },
    patience(240_000),
  );
});
