/**
 * `iwarpd capture`, `trace` and `decode` on packets of unmodified programs over RoCE, with Wireshark's
 * dissector and our own codecs as judges.
 */
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { shimVariables } from '#daemon/console/shim-environment';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, parseDatagram } from '#daemon/roce/wire/datagram';
import { icrcOf, readIcrc } from '#daemon/roce/wire/icrc';
import { opcodeName } from '#daemon/roce/wire/opcode';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { datagramsOf, recordingPath } from '../support/captured-datagrams.ts';
import { CommandFolder, ended, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { listens, ShimProgram } from '../support/shim-programs.ts';
import { dissect } from './tshark.ts';
import { type DissectedPacket, dissectRoce } from './tshark-roce.ts';

const IWARP = '127.0.72.8';

let daemonFolder: CommandFolder;
let folder: CommandFolder;
let socket: string;

beforeAll(async () => {
  daemonFolder = new CommandFolder();
  socket = daemonFolder.file('d/s');
  const roce = ['roce0=roce:127.0.72.9', 'roce1=roce:::1'];
  const devices = [...roce, `iwarp0=${IWARP}`].flatMap((device) => ['--device', device]);
  await daemonFolder.daemon(socket, devices);
});
afterAll(() => daemonFolder.clean());
beforeEach(() => {
  folder = new CommandFolder();
});
afterEach(() => folder.clean());

/** Runs both ends of a program; both must succeed. */
async function pair(command: string): Promise<void> {
  const port = await freePort();
  const words = [...command.split(' '), '-p', String(port)];
  const environment = shimVariables(socket, {});
  const server = new ShimProgram(words, environment);
  await listens(port, server);
  const client = new ShimProgram([...words, '127.0.0.1'], environment);
  const [served, asked] = await Promise.all([server.end(), client.end()]);
  expect([asked.status, served.status], `${asked.output}${served.output}`).toEqual([0, 0]);
}

async function capturing(file: string, words: readonly string[] = []): Promise<RunningCommand> {
  const command = folder.start(['capture', '-w', file, '--socket', socket, ...words]);
  await command.until(/capturing to/, 'stderr');
  return command;
}

function opcodesOf(rows: readonly DissectedPacket[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const row of rows) {
    const name = opcodeName(Number(row['bth.opcode']));
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

/** Every datagram of the file has the ICRC that our codec computes over it. */
function expectRightIcrc(path: string): void {
  const datagram = new Datagram();
  const wrong = datagramsOf(path).filter((bytes) => {
    expect(parseDatagram(bytes, 0, bytes.length, datagram)).toBe(0);
    const end = datagram.packetStart + datagram.packetLength;
    return icrcOf(crc32, bytes, 0, datagram.packetStart, end) !== readIcrc(bytes, end);
  });
  expect(wrong).toEqual([]);
}

describeWith(['tshark', 'rdma-programs'], 'captures of RoCE', () => {
  it.each([
    ['ibv_rc_pingpong -d roce0 -g 1 -n 20 -s 6000 -m 4096', ['RC SEND First', 'RC SEND Last']],
    ['ibv_rc_pingpong -d roce1 -g 1 -n 20 -s 100', ['RC SEND Only']],
    ['ibv_uc_pingpong -d roce0 -g 1 -n 20 -m 1024', ['UC SEND First', 'UC SEND Last']],
    ['ibv_ud_pingpong -d roce0 -g 1 -n 20 -s 1000', ['UD SEND Only']],
  ])('Wireshark dissects %s without a complaint', async (command, messages) => {
    const file = folder.file('x.pcapng');
    const capture = await capturing(file);
    await pair(command);
    const { stderr } = await ended(capture);
    const rows = await dissectRoce(file);
    expect(rows.filter(({ complaint }) => complaint !== '')).toEqual([]);
    const counts = opcodesOf(rows);
    // Twenty messages each way.
    for (const name of messages) expect(counts[name], name).toBe(40);
    expect(stderr).toContain(`0 connections, ${rows.length} RoCEv2 packets`);
    expectRightIcrc(file);
    const decoded = await runCommand(['decode', file]);
    expect(decoded.stderr).toContain(`${rows.length} RoCEv2 packets, 0 errors`);
    expect(decoded.stdout.split('\n')).toHaveLength(rows.length + 1);
  });

  it('shows atomics, Reads and Writes of perftest with their fields', async () => {
    const file = folder.file('x.pcapng');
    const capture = await capturing(file);
    await pair('ib_atomic_lat -F -d roce0 -x 1 -n 5 -A FETCH_AND_ADD');
    await pair('ib_atomic_lat -F -d roce0 -x 1 -n 5 -A CMP_AND_SWAP');
    await pair('ib_read_lat -F -d roce0 -x 1 -n 5 -s 64');
    await pair('ib_write_lat -F -d roce0 -x 1 -n 5 -s 64');
    await ended(capture);
    const rows = await dissectRoce(file);
    expect(rows.filter(({ complaint }) => complaint !== '')).toEqual([]);
    expect(opcodesOf(rows)).toMatchObject({
      'RC FetchAdd': 5,
      'RC CmpSwap': 5,
      'RC ATOMIC Acknowledge': 10,
      'RC RDMA READ Request': 5,
      'RC RDMA READ response Only': 5,
      'RC RDMA WRITE Only': 10,
    });
    expectRightIcrc(file);
  });

  it('has iWARP and RoCE in one file', async () => {
    const file = folder.file('x.pcapng');
    const capture = await capturing(file);
    const port = String(await freePort(IWARP));
    const server = folder.start(['rping', '-s', '-d', '-a', IWARP, '-p', port, '--socket', socket]);
    await server.until(/listening/, 'stderr');
    const words = ['-a', IWARP, '-p', port, '-C', '2', '--socket', socket];
    expect((await folder.start(['rping', '-c', ...words]).end()).status).toBe(0);
    await pair('ibv_rc_pingpong -d roce0 -g 1 -n 5');
    const { stderr } = await ended(capture);
    expect(stderr).toMatch(/1 connection, \d+ RoCEv2 packets, /);
    const { malformed, fpdus, crcBad } = await dissect(file);
    expect([malformed, crcBad]).toEqual([[], 0]);
    const { stderr: summary } = await runCommand(['decode', file]);
    expect(summary).toMatch(
      new RegExp(`: 1 iWARP connection, ${fpdus.length} FPDUs, \\d+ RoCEv2 packets, 0 errors`),
    );
  });

  it('has only what the options select', async () => {
    const files = [folder.file('device'), folder.file('address'), folder.file('port')];
    const filters = [
      ['--device', 'roce1'],
      ['--address', '127.0.72.9'],
      ['--port', '1'],
    ];
    const captures = await Promise.all(
      files.map((file, index) => capturing(file, filters[index] ?? [])),
    );
    await pair('ibv_rc_pingpong -d roce0 -g 1 -n 5');
    const notes = await Promise.all(captures.map(async (each) => (await ended(each)).stderr));
    expect(notes[0]).not.toContain('RoCEv2');
    expect(notes[1]).toMatch(/[1-9]\d* RoCEv2 packets/);
    expect(notes[2]).not.toContain('RoCEv2');
  });
});

describeWith(['tshark', 'rdma-programs'], 'captures of one queue pair of RoCE', () => {
  it('have its packets in both directions, and those of no other', async () => {
    const control = new DaemonControl({ socketPath: socket });
    const environment = shimVariables(socket, {});
    // Two conversations that outlast the capture.
    const programs: ShimProgram[] = [];
    for (const _ of [0, 1]) {
      const port = await freePort();
      const words = `ibv_rc_pingpong -d roce0 -g 1 -n 100000000 -p ${port}`.split(' ');
      const server = new ShimProgram(words, environment);
      await listens(port, server);
      programs.push(server, new ShimProgram([...words, '127.0.0.1'], environment));
    }
    const ready = async () =>
      (await control.queuePairs({ device: 'roce0' })).filter(({ state }) => state === 'RTS');
    await expect.poll(async () => (await ready()).length).toBe(4);
    const [chosen] = await ready();
    const file = folder.file('x.pcapng');
    const capture = await capturing(file, ['--qp', String(chosen?.qpNum)]);
    await expect.poll(() => readFileSync(file).length).toBeGreaterThan(50_000);
    await ended(capture);
    await Promise.all(programs.map((program) => program.kill()));
    const rows = await dissectRoce(file);
    expect(rows.filter(({ complaint }) => complaint !== '')).toEqual([]);
    // Its own number, and its peer's.
    const targets = new Set(rows.map((row) => Number(row['bth.destqp'])));
    expect(targets.size).toBe(2);
    expect(targets).toContain(chosen?.qpNum);
  });
});

describeWith(['rdma-programs'], 'traces of RoCE', () => {
  it('print a line for each packet, between work requests and completions', async () => {
    const trace = folder.start(['trace', '--json', '--device', 'roce0', '--socket', socket]);
    await trace.until(/tracing/, 'stderr');
    await pair('ibv_rc_pingpong -d roce0 -g 1 -n 3 -s 100');
    const { stdout } = await ended(trace);
    const records = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    const sends = records.filter(({ opcode }) => opcode === 'RC SEND Only');
    expect(sends).toHaveLength(6);
    expect(sends[0]).toMatchObject({
      kind: 'packet',
      device: 'roce0',
      peerDevice: 'roce0',
      bytes: 100,
      by: 'us',
      source: expect.stringMatching(/^127\.0\.72\.9:\d+$/),
      destination: '127.0.72.9:4791',
      text: expect.stringMatching(/^RC SEND Only to QP \d+, PSN \d+, 100 bytes, .*asks for ACK$/),
    });
    expect(sends[0].text).toContain(`to QP ${sends[0].peerQpn},`);
    const acks = records.filter(({ opcode }) => opcode === 'RC Acknowledge');
    expect(acks[0].text).toMatch(/, ACK, MSN 1$/);
    expect(new Set(records.map(({ kind }) => kind))).toEqual(new Set(['wqe', 'packet', 'cqe']));
  });

  it('select kinds and queue pairs', async () => {
    const trace = folder.start(['trace', '--only', 'packet', '--qp', '1', '--socket', socket]);
    await trace.until(/tracing/, 'stderr');
    const all = folder.start(['trace', '--only', 'packet', '--socket', socket]);
    await all.until(/tracing/, 'stderr');
    await pair('ibv_rc_pingpong -d roce0 -g 1 -n 3');
    expect((await ended(trace)).stdout).toBe('');
    expect((await ended(all)).stdout).toMatch(
      /^[\d:.]{12} {2}127\.0\.72\.9:\d+ > 127\.0\.72\.9:4791 {2}RC SEND First to QP /m,
    );
  });
});

describeWith([], 'iwarpd decode', () => {
  it.each(['ipv4', 'ipv6'] as const)('reads what rxe sent over %s', async (family) => {
    const path = recordingPath(`opcodes-${family}`);
    const count = datagramsOf(path).length;
    const { stdout, stderr } = await runCommand(['decode', path]);
    expect(stderr).toBe(
      `${count} packets: 0 iWARP connections, 0 FPDUs, ${count} RoCEv2 packets, 0 errors\n`,
    );
    expect(stdout.trimEnd().split('\n')).toHaveLength(count);
    for (const text of ['RNR NAK for', 'NAK remote', 'original 0x', 'invalidates']) {
      expect(stdout).toContain(text);
    }
  });
});
