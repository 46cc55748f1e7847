/** `iwarpd capture`, `trace` and `decode` on devices of SCTP, with Wireshark's dissector as a judge. */
import { spawnSync } from 'node:child_process';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Access, SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { MR } from '#contract/verbs/provider';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { CommandFolder, ended, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { ownAddress } from '../support/own-address.ts';
import { programSeconds, until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';

const A = ownAddress(51);
const B = ownAddress(52);
const PORT = 7471;

const folder = new CommandFolder();
let socket: string;

beforeEach(async () => {
  socket = folder.file('iwarpd.sock');
  await folder.daemon(socket, ['--device', `a=sctp:${A}`, '--device', `b=sctp:${B}`]);
});

afterEach(() => folder.clean());

/** Runs perftest between the two; its server listens at `address`. */
async function write(address: string, bytes: number): Promise<void> {
  const load = ['-s', String(bytes), '-n', '5'];
  const words = ['ib_write_bw', '-R', '-F', ...load, '-p', String(PORT)];
  const run = ['run', '--socket', socket, '--', 'timeout', `${programSeconds()}`];
  const server = folder.start([...run, ...words]);
  const patient = 'for i in $(seq 100); do "$@" && exit; sleep 0.1; done; exit 1';
  const client = await runCommand([...run, 'sh', '-c', patient, 'sh', ...words, address]);
  expect(client.status, client.stderr + client.stdout).toBe(0);
  expect((await server.end()).status).toBe(0);
}

/**
 * Opens `count` connections of one program at once; each Writes, then all end. perftest is
 * unsuitable: if its server is not ready, it connects again from the same port, and an association
 * of a chosen port is not shared.
 */
async function writeOnMany(count: number, bytes: number): Promise<void> {
  await using server = await connectDaemon({ socketPath: socket });
  await using client = await connectDaemon({ socketPath: socket });
  const listener = await listen(server, { host: B, backlog: count });
  const accepted: Connection[] = [];
  const regions: MR[] = [];
  const serving = (async () => {
    for await (const request of listener) {
      const pd = await (await server.open('b')).allocPD();
      regions.push(await pd.allocMR(bytes, Access.localWrite | Access.remoteWrite));
      accepted.push(await request.accept({ pd }));
      if (accepted.length === count) return;
    }
  })();
  const { port } = listener.address;
  const dialled = Array.from({ length: count }, () => connect(client, { host: B, port }));
  const connections = await Promise.all(dialled);
  await serving;
  const writes = connections.map(async ({ pd, qp, cq }) => {
    const memory = await pd.allocMR(bytes, Access.localWrite);
    // Which of them it reaches does not matter.
    const target = regions.pop() as MR;
    qp.postSend({
      opcode: WROpcode.rdmaWrite,
      flags: SendFlag.signaled,
      sgList: [memory.sge()],
      remoteAddr: target.address,
      rkey: target.rkey,
    });
    expect(await cq.wait({ max: 1 })).toMatchObject([{ status: WCStatus.success }]);
  });
  await Promise.all(writes);
  await Promise.all([...connections, ...accepted].map((each) => each.close()));
}

async function started(words: readonly string[], sign: RegExp): Promise<RunningCommand> {
  const command = folder.start([...words, '--socket', socket]);
  await command.until(sign, 'stderr');
  return command;
}

/** Fields of every chunk that Wireshark finds, a row per packet; commas separate values. */
function dissected(path: string, fields: readonly string[]): Record<string, string[]>[] {
  const words = ['-r', path, '-o', 'sctp.checksum:CRC 32c', '-T', 'fields', '-E', 'separator=;'];
  const { stdout, status } = spawnSync(
    'tshark',
    [...words, ...fields.flatMap((field) => ['-e', field])],
    { encoding: 'utf8', maxBuffer: 1 << 28 },
  );
  expect(status).toBe(0);
  return stdout
    .trim()
    .split('\n')
    .map((line) => {
      const values = line.split(';').map((value) => (value === '' ? [] : value.split(',')));
      return Object.fromEntries(fields.map((field, at) => [field, values[at] ?? []]));
    });
}

const FIELDS = [
  'sctp.checksum.status',
  'sctp.chunk_type',
  'sctp.adaptation_layer_indication',
  'sctp.init_nr_out_streams',
  'sctp.init_nr_in_streams',
  'sctp.initack_nr_out_streams',
  'sctp.initack_nr_in_streams',
  'sctp.data_u_bit',
  'sctp.data_b_bit',
  'sctp.data_e_bit',
  'sctp.data_payload_proto_id',
  'udp.checksum.status',
  'ip.checksum.status',
  '_ws.malformed',
];

const ALL_SET = /^(1|True)$/;

describeWith(['sctp', 'perftest', 'tshark'], 'a capture of SCTP', () => {
  it('shows every packet as on the network: indication, equal streams each way, whole and unordered DATA [SCTP-5.1-01, SCTP-8-01, SCTP-9-02, SCTP-10-01]', async () => {
    const path = folder.file('traffic.pcapng');
    const capture = await started(['capture', '-w', path], /capturing to/);
    await write(B, 300_000);
    await write(A, 1000);
    expect((await ended(capture)).stderr).toMatch(/\d+ SCTP packets/);
    const packets = dissected(path, FIELDS);
    const all = (field: string) => packets.flatMap((packet) => packet[field] ?? []);
    expect(new Set(all('sctp.checksum.status'))).toEqual(new Set(['1']));
    expect(packets.every((packet) => packet['sctp.checksum.status']?.length === 1)).toBe(true);
    expect(all('_ws.malformed')).toEqual([]);
    // 0 means a bad checksum.
    expect(all('udp.checksum.status')).not.toContain('0');
    // INIT and INIT ACK of each association.
    const setups = packets.filter((packet) =>
      ['1', '2'].includes(packet['sctp.chunk_type']?.[0] ?? ''),
    );
    expect(setups.length).toBeGreaterThanOrEqual(4);
    for (const setup of setups) {
      const kind = setup['sctp.chunk_type']?.[0] === '1' ? 'init' : 'initack';
      expect(setup['sctp.adaptation_layer_indication']).toEqual(['0x00000001']);
      expect(setup[`sctp.${kind}_nr_out_streams`]).toEqual(setup[`sctp.${kind}_nr_in_streams`]);
    }
    for (const bit of ['u', 'b', 'e']) {
      const bits = all(`sctp.data_${bit}_bit`);
      expect(bits.length).toBeGreaterThan(20);
      expect(bits.filter((value) => !ALL_SET.test(value))).toEqual([]);
    }
    expect(new Set(all('sctp.data_payload_proto_id').map(Number))).toEqual(new Set([16, 17]));
  });

  it('shows the connections of a program on streams of one association, each with its own DDP-SSNs [SCTP-6-01, SCTP-5.2.1-02]', async () => {
    const path = folder.file('traffic.pcapng');
    const capture = await started(['capture', '-w', path], /capturing to/);
    await writeOnMany(4, 100_000);
    await ended(capture);
    const fields = 'udp.port sctp.port ip.src sctp.data_tsn sctp.data_sid data.data'.split(' ');
    const packets = dissected(path, fields);
    const data = packets.filter((packet) => (packet['sctp.data_sid'] ?? []).length > 0);
    const keys = data.map((packet) => packet['sctp.port']?.toSorted().join());
    expect(new Set(keys).size).toBe(1);
    /** DDP-SSNs by sender and stream; skips TSNs that are retransmitted. */
    const streams = new Map<string, number[]>();
    const seen = new Set<string>();
    for (const packet of data) {
      const source = packet['ip.src']?.[0] ?? '';
      packet['sctp.data_sid']?.forEach((sid, at) => {
        const tsn = `${source} ${packet['sctp.data_tsn']?.[at]}`;
        if (seen.has(tsn)) return;
        seen.add(tsn);
        const key = `${source} ${Number(sid)}`;
        const ssn = Number.parseInt(packet['data.data']?.[at]?.slice(0, 4) ?? '', 16);
        streams.set(key, [...(streams.get(key) ?? []), ssn]);
      });
    }
    expect(streams.size).toBe(8);
    for (const ssns of streams.values()) {
      expect(ssns.toSorted((one, other) => one - other)).toEqual(ssns.map((_, at) => at));
    }
  });

  it('is decoded: a line for each packet, and for each message of DDP in it', async () => {
    const path = folder.file('traffic.pcapng');
    const capture = await started(['capture', '-w', path, '--port', String(PORT)], /capturing to/);
    await write(B, 300_000);
    // The programs do not wait for the end of their association.
    await until('the end of the association', async () => {
      return (await runCommand(['decode', path])).stdout.includes('SCTP SHUTDOWN COMPLETE');
    });
    await ended(capture);
    const { stdout, stderr } = await runCommand(['decode', path]);
    expect(stderr + stdout).toMatch(/\d+ SCTP packets, 0 errors/);
    expect(stdout).toMatch(/SCTP INIT\n/);
    expect(stdout).toContain('DATA SSN 0: session Enhanced Initiate, IRD');
    expect(stdout).toContain('DATA SSN 0: session Enhanced Accept, IRD');
    expect(stdout).toMatch(/Write STag 0x[0-9a-f]{8} TO 0x[0-9a-f]{16}, \d{5} bytes\n/);
    expect(stdout).toContain('session Terminate');
    expect(stdout).toMatch(/SCTP SHUTDOWN COMPLETE/);
  });

  it('of one device or queue pair shows only its packets, and a trace names both', async () => {
    const trace = await started(['trace', '--device', 'b', '--json'], /tracing/);
    await write(A, 1000);
    await write(B, 1000);
    const { stdout } = await ended(trace);
    const records = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const packets = records.filter(({ kind }) => kind === 'packet');
    expect(packets.length).toBeGreaterThan(10);
    const devices = packets.map((each) => [each['device'], each['peerDevice']]);
    expect(devices.every((pair) => pair.includes('b'))).toBe(true);
    const writes = packets.filter(({ opcode }) => opcode === 'Write');
    expect(writes.length).toBeGreaterThan(0);
    for (const { qpn, peerQpn } of writes) expect([Number(qpn), Number(peerQpn)]).not.toContain(0);
  });
});
