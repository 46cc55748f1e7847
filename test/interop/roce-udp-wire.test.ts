/**
 * The traffic between two daemons, with Wireshark's dissector and our own codecs as judges; and
 * that faults and captures see packets of both directions.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { shimVariables } from '#daemon/console/shim-environment';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, parseDatagram } from '#daemon/roce/wire/datagram';
import { icrcOf, readIcrc } from '#daemon/roce/wire/icrc';
import { OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { datagramsOf } from '../support/captured-datagrams.ts';
import { CommandFolder, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { ownAddress } from '../support/own-address.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { type Environment, listens, ShimProgram } from '../support/shim-programs.ts';
import { dissectRoce } from './tshark-roce.ts';

const [NEAR, FAR] = [ownAddress(4), ownAddress(5)];

/** Runs both ends; both must succeed. */
async function pair(command: string, server: Environment, client: Environment): Promise<void> {
  const port = await freePort();
  const words = [...command.split(' '), '-p', String(port)];
  const serving = new ShimProgram(words, server);
  await listens(port, serving);
  const asking = new ShimProgram([...words, '127.0.0.1'], client);
  const [asked, served] = await Promise.all([asking.end(), serving.end()]);
  const output = `${asked.output}${served.output}`;
  expect([asked.status, served.status], output).toEqual([0, 0]);
  expect(output).not.toContain('invalid data');
}

/** Every datagram of the file has the ICRC that our codec computes over it, and identification 0. */
function expectRightIcrc(path: string): void {
  const datagram = new Datagram();
  for (const bytes of datagramsOf(path)) {
    expect(parseDatagram(bytes, 0, bytes.length, datagram)).toBe(0);
    expect(datagram.identification).toBe(0);
    const end = datagram.packetStart + datagram.packetLength;
    expect(icrcOf(crc32, bytes, 0, datagram.packetStart, end)).toBe(readIcrc(bytes, end));
  }
}

describeWith(['tshark', 'rdma-programs'], 'the wire between two daemons', () => {
  const folder = new CommandFolder();
  const sockets = [folder.file('a/s'), folder.file('b/s')] as const;
  const [near, far] = [shimVariables(sockets[0], {}), shimVariables(sockets[1], {})];

  beforeAll(async () => {
    await folder.daemon(sockets[0], ['--device', `roce0=roce:${NEAR}`]);
    await folder.daemon(sockets[1], ['--device', `roce0=roce:${FAR}`]);
  });
  afterAll(() => folder.clean());

  /** Records the loopback interface. */
  async function recording(file: string): Promise<ChildProcess> {
    const filter = `udp dst port 4791 and host ${NEAR}`;
    const child = spawn('tshark', ['-q', '-i', 'lo', '-f', filter, '-w', file], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr?.on('data', (bytes: Buffer) => {
      said += bytes.toString();
    });
    await expect.poll(() => said).toMatch(/Capturing on/);
    // It prints this shortly before it starts.
    await quiet(1000);
    return child;
  }

  async function capturing(file: string): Promise<RunningCommand> {
    const command = folder.start(['capture', '-w', file, '--socket', sockets[0]]);
    await command.until(/capturing to/, 'stderr');
    return command;
  }

  it.each([
    'ibv_rc_pingpong -g 1 -n 20 -s 6000 -m 4096 -c',
    'ibv_uc_pingpong -g 1 -n 20 -m 1024 -c',
    'ibv_ud_pingpong -g 1 -n 20 -s 1001 -c',
  ])(
    'is RoCEv2 to Wireshark, and a capture shows the same: %s [ROCE-UDP-01, ROCE-UDP-03]',
    async (command) => {
      const [wire, own] = [folder.file('wire.pcapng'), folder.file('own.pcapng')];
      const recorder = await recording(wire);
      const capture = await capturing(own);
      await pair(command, far, near);
      capture.signal('SIGINT');
      expect((await capture.end()).status).toBe(0);
      await quiet(1000);
      recorder.kill('SIGINT');
      await once(recorder, 'close');
      const [sent, seen] = await Promise.all([dissectRoce(wire, true), dissectRoce(own)]);
      expect(sent.filter(({ complaint }) => complaint !== '')).toEqual([]);
      expect(sent.length).toBeGreaterThanOrEqual(40);
      expectRightIcrc(wire);
      expect(seen.map((row) => row['invariant.crc']).sort()).toEqual(
        sent.map((row) => row['invariant.crc']).sort(),
      );
      expect((await runCommand(['decode', own])).stderr).toContain(
        `${sent.length} RoCEv2 packets, 0 errors`,
      );
    },
  );

  it('is traced with the packets that arrive', async () => {
    const trace = folder.start(['trace', '--socket', sockets[1]]);
    await trace.until(/tracing/, 'stderr');
    await pair('ibv_rc_pingpong -g 1 -n 3', far, near);
    trace.signal('SIGINT');
    const { stdout } = await trace.end();
    expect(stdout).toMatch(new RegExp(`${NEAR}:4791 > .*RC SEND Last`));
    expect(stdout).toMatch(new RegExp(`${FAR}:4791 > .*RC Acknowledge`));
    const [device] = (await new DaemonControl({ socketPath: sockets[1] }).status()).devices;
    expect(device?.hwCounters?.['rcvd_pkts']).toBeGreaterThan(0);
  });
});

describeWith(['rdma-programs'], 'faults between two daemons', () => {
  let near: RoceRig;
  let far: RoceRig;

  beforeAll(async () => {
    near = await RoceRig.start({ name: 'roce0', addresses: [ownAddress(6)], transport: 'roce' });
    far = await RoceRig.start({ name: 'roce0', addresses: [ownAddress(7)], transport: 'roce' });
  });
  afterEach(() => near.host.faults.clear());
  afterAll(async () => {
    await near.stop();
    await far.stop();
  });

  it.each(['ibv_rc_pingpong', 'ibv_ud_pingpong', 'ib_send_bw -F -x 1 -c UD -s 1024 -n 300'])(
    '%s, while the kernel often has no room',
    async (command) => {
      const { send } = OutgoingBatch.prototype;
      let calls = 0;
      const full = vi.spyOn(OutgoingBatch.prototype, 'send').mockImplementation(function (
        this: OutgoingBatch,
        fd,
        first,
      ) {
        calls += 1;
        return calls % 3 === 0 ? -11 : send.call(this, fd, first);
      });
      const words = command.startsWith('ibv') ? `${command} -g 1 -c -n 100` : command;
      await pair(words, far.environment, near.environment);
      full.mockRestore();
      expect(calls).toBeGreaterThan(10);
      for (const { host } of [near, far]) {
        expect(host.devices[0]?.hwCounters).toMatchObject({ send_err: 0 });
      }
    },
  );

  it.each<[FaultSpec]>([
    [{ kind: 'drop', direction: 'in', probability: 0.03, seed: 1 }],
    [{ kind: 'drop', direction: 'out', probability: 0.03, seed: 1 }],
    [{ kind: 'duplicate', direction: 'in', probability: 0.1, seed: 2 }],
    [{ kind: 'duplicate', direction: 'out', probability: 0.1, seed: 2 }],
    [{ kind: 'reorder', direction: 'in', opcode: 'send', every: 10 }],
    [{ kind: 'corrupt-icrc', direction: 'in', every: 50 }],
    [{ kind: 'corrupt-icrc', direction: 'out', every: 50 }],
    [{ kind: 'delay', direction: 'in', ms: 2, every: 10 }],
    [{ kind: 'rnr', direction: 'in', every: 10 }],
    [{ kind: 'nak', direction: 'in', syndrome: 'psn-sequence', every: 10 }],
  ])('%j: all data arrives', async (spec) => {
    const fault = near.host.faults.add(spec, undefined);
    await pair('ibv_rc_pingpong -g 1 -c -m 1024 -s 3000 -n 100', far.environment, near.environment);
    expect(fault.status.fired).toBeGreaterThan(0);
  });
});
