/**
 * Rings of processes that add up their arrays with the calls of NCCL's IB transport: on two rails, under
 * faults, and between two hosts.
 */
import { writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { shimVariables } from '#daemon/console/shim-environment';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { CommandFolder, RunningCommand, runCommand } from '../support/cli-process.ts';
import { DaemonProcess } from '../support/daemon-process.ts';
import { networkNamespace } from '../support/network-namespace.ts';
import { programSeconds, until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type EndedProgram, type Environment, ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

/** Rounds of a ring that ends when it is told. */
const FOREVER = -1;
/** Eight retransmissions take half a second. */
const IMPATIENT: Environment = { NCCL_IB_TIMEOUT: '14' };
const ALL_OPTIONS: Environment = {
  NCCL_IB_USE_INLINE: '1',
  NCCL_IB_ADAPTIVE_ROUTING: '1',
  NCCL_IB_SPLIT_DATA_ON_QPS: '1',
};

const folder = new CommandFolder();
const running: ShimProgram[] = [];

let program: string;
let daemon: DaemonProcess;
let control: DaemonControl;

/** The ranks of a ring, on the daemon's two rails. */
class Ring {
  readonly ranks: readonly ShimProgram[];

  private constructor(ranks: readonly ShimProgram[]) {
    this.ranks = ranks;
  }

  /** Messages are received in `parts`. */
  static async start(
    count: number,
    rounds: number,
    environment: Environment = {},
    parts = 1,
  ): Promise<Ring> {
    const variables = { ...shimVariables(daemon.socketPath, {}), ...environment };
    const start = (rank: number, port: number): ShimProgram => {
      const words = [rank, count, '127.0.0.1', port, rounds, parts].map(String);
      const started = new ShimProgram([program, ...words], variables);
      running.push(started);
      return started;
    };
    const ranks = [start(0, 0)];
    const [root] = ranks;
    await root?.until(/listens at port \d+\n/);
    const port = Number(/port (\d+)/.exec(root?.output ?? '')?.[1]);
    while (ranks.length < count) ranks.push(start(ranks.length, port));
    return new Ring(ranks);
  }

  /** Starts one that lasts; it has done its first round. */
  static async startLasting(count: number, environment: Environment): Promise<Ring> {
    const ring = await Ring.start(count, FOREVER, environment);
    await ring.until(/round 1 is right/);
    return ring;
  }

  /** Waits until each rank has printed this. */
  async until(pattern: RegExp): Promise<void> {
    for (const rank of this.ranks) await rank.until(pattern);
  }

  end(): Promise<EndedProgram[]> {
    return Promise.all(this.ranks.map((rank) => rank.end()));
  }

  /** Each rank ends, and its sums are right. */
  async expectSums(rounds = '\\d+'): Promise<EndedProgram[]> {
    const all = await this.end();
    for (const { status, output } of all) {
      expect(status, output).toBe(0);
      expect(output).toMatch(new RegExp(`: ${rounds} rounds are right\n.*: ends\n$`));
    }
    return all;
  }

  /** Each rank ends with an error that it names, but for those that were killed. Returns all output. */
  async expectAborts(): Promise<string> {
    const all = await this.end();
    for (const { status, signal, output } of all) {
      if (signal !== undefined) continue;
      expect(status, output).toBe(1);
      expect(output).toMatch(/: (completion on roce\d: .*|fatal error|rank \d has gone)\n/);
      expect(output).toMatch(/: aborts\n$/);
    }
    return all.map(({ output }) => output).join('');
  }
}

/** A counter of each rail. */
async function counted(name: string): Promise<number[]> {
  const rails = (await control.devices()).filter(({ device }) => device.name !== 'iwarp0');
  return rails.map(({ hwCounters }) => hwCounters?.[name] ?? 0);
}

/** In a network namespace of our own; undefined where that is not permitted. */
const apart = networkNamespace('true');

/** A second namespace, two veth pairs into it, and a daemon with two rails and a rank in each. */
const TWO_HOSTS = `
  set -e
  ip link set lo up
  unshare --net sleep ${programSeconds()} & inner=$!
  trap 'kill $inner' EXIT
  until [ "$(readlink /proc/$inner/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
  within() { nsenter --net=/proc/$inner/ns/net "$@"; }
  within ip link set lo up
  for rail in 0 1; do
    ip link add near$rail type veth peer name far$rail netns $inner
    ip address add 10.79.$rail.1/24 dev near$rail
    ip link set near$rail up
    within ip address add 10.79.$rail.2/24 dev far$rail
    within ip link set far$rail up
  done
  program=$1 near=$2 far=$3; shift 3
  "$@" run --network host --config $near -- \
    timeout ${programSeconds()} $program 0 2 10.79.0.1 4000 3 1 & root=$!
  until grep -q ':0FA0 .* 0A ' /proc/net/tcp; do sleep 0.05; done
  within "$@" run --network host --config $far -- \
    timeout ${programSeconds()} $program 1 2 10.79.0.1 4000 3 1
  wait $root
`;

describeWith(['native', 'rdma-programs'], 'a ring of ranks', () => {
  beforeAll(async () => {
    // It loads libibverbs itself.
    program = compileProgram('ib-transport', ['-Wl,--as-needed']);
    daemon = await DaemonProcess.start({
      network: 'isolated',
      rails: { count: 2 },
      // NCCL would take it, too.
      devices: [{ name: 'iwarp0', addresses: ['127.0.0.1'] }],
    });
    control = new DaemonControl({ socketPath: daemon.socketPath });
  });

  afterEach(async () => {
    await Promise.all(running.splice(0).map((rank) => rank.kill()));
    await control.removeFaults();
    await until('the ranks to be gone', async () => (await control.clients()).length === 0);
    await folder.clean();
  });

  afterAll(() => daemon.clean());

  describe('on two rails', () => {
    // Each takes the FIFO's 256 slots more than once.
    it.each<[string, number, number, Environment, number]>([
      ['two ranks', 2, 60, {}, 1],
      ['eight ranks', 8, 4, {}, 1],
      ['messages received in three parts', 2, 60, {}, 3],
      ['inline, routed, on all queue pairs', 2, 60, ALL_OPTIONS, 1],
    ])('adds up: %s', async (_, count, rounds, environment, parts) => {
      const before = await counted('sent_pkts');
      const ring = await Ring.start(count, rounds, environment, parts);
      for (const { output } of await ring.expectSums(`${rounds}`)) {
        for (const [rail, place] of ['1000:01:00.0', '1000:02:00.0'].entries()) {
          const says = `: roce${rail}: 100000 Mb/s, /sys/devices/pci${place.slice(0, 7)}/${place}, GID 1, no DMA buffers\n`;
          expect(output).toContain(says);
        }
      }
      const sent = (await counted('sent_pkts')).map((now, rail) => now - (before[rail] ?? 0));
      expect(Math.min(...sent)).toBeGreaterThan(Math.max(...sent) / 2);
    });
  });

  describe('under faults', () => {
    it('adds up although packets are lost', async () => {
      const before = await counted('completer_retry_err');
      await control.addFault({ kind: 'drop', probability: 0.01, seed: 11 });
      await (await Ring.start(2, 10, { NCCL_IB_TIMEOUT: '10' })).expectSums('10');
      const after = await counted('completer_retry_err');
      for (const [rail, count] of after.entries()) expect(count).toBeGreaterThan(before[rail] ?? 0);
    });

    it('waits for a rail that is down for a time', async () => {
      const ring = await Ring.startLasting(2, { NCCL_IB_TIMEOUT: '17' });
      const words = ['rail', 'down', 'roce1', '--for', '200ms', '--socket', daemon.socketPath];
      expect((await runCommand(words)).status).toBe(0);
      await ring.until(/: event on roce1: port error\n.*: event on roce1: port active\n/);
      ring.ranks[0]?.signal('SIGUSR1');
      await ring.expectSums();
    });

    it.each<FaultSpec>([
      { kind: 'port-down', device: 'roce1' },
      { kind: 'drop', device: 'roce1' },
    ])('aborts if a rail stays down: %j', async (fault) => {
      const ring = await Ring.startLasting(3, IMPATIENT);
      await control.addFault(fault);
      const output = await ring.expectAborts();
      expect(output).toMatch(
        /completion on roce1: transport retry counter exceeded \(12\), vendor_err \d+, (to|from) rank \d\n/,
      );
      expect(output).not.toContain('completion on roce0: transport');
    });

    it('aborts if a queue pair fails', async () => {
      const ring = await Ring.startLasting(3, IMPATIENT);
      await control.addFault({ kind: 'qp-fatal', device: 'roce1', opcode: 'write', nth: 5 });
      const output = await ring.expectAborts();
      // A rank that first finds what was flushed may end before it prints the event.
      expect(output).toMatch(
        /(event on roce1: local work queue catastrophic error, state 6|completion on roce1: Work Request Flushed Error \(5\), .*)\n/,
      );
    });

    it('aborts if a rank is killed', async () => {
      const ring = await Ring.startLasting(8, {});
      await ring.ranks[3]?.kill();
      const output = await ring.expectAborts();
      expect(output).toMatch(/rank [24]: (rank 3 has gone|completion .* (to|from) rank 3)\n/);
    });
  });

  it.skipIf(apart === undefined)('adds up on two hosts (needs a network namespace)', async () => {
    const configured = [1, 2].map((host) => {
      const path = folder.file(`${host}.json`);
      const rails = { count: 2, addresses: [`10.79.0.${host}`, `10.79.1.${host}`] };
      writeFileSync(path, JSON.stringify({ rails }));
      return path;
    });
    const within = [...(apart ?? []), 'bash', '-c', TWO_HOSTS, 'bash', program, ...configured];
    const { status, stdout, stderr } = await new RunningCommand([], {}, within).end();
    expect(status, `${stdout}${stderr}`).toBe(0);
    for (const rank of [0, 1]) expect(stdout).toContain(`rank ${rank}: 3 rounds are right\n`);
  });
});
