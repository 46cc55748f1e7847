/** A client that does not read what its peers send delays only its own connections. */
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { MR, Provider } from '#contract/verbs/provider';
import type { SendWR } from '#contract/verbs/work-request';
import { connect } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { DaemonProcess, printed, startProgram } from '../support/daemon-process.ts';
import { parseRegion, REGION_BYTES } from '../support/daemon-region.ts';
import { quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { completions, connectedPair, type Pair, send } from '../support/provider-fixture.ts';

const DEPTH = 32;
const STOPPED_MS = 2_000;
/** Memory that one stopped client may cost: data in flight, once as written and once as sent. */
const COST_MAX_BYTES = 32 * 2 ** 20;

let daemon: DaemonProcess;
let provider: Provider;
let pair: Pair;
let sink: ChildProcess;

beforeEach(async () => {
  daemon = await DaemonProcess.start({
    devices: [{ name: 'rnic0', addresses: ['127.0.0.1'] }],
    memoryTiers: ['agent'],
  });
  provider = await connectDaemon({ socketPath: daemon.socketPath });
  pair = await connectedPair({ server: provider, client: provider, stop: async () => undefined });
  sink = startProgram('daemon-sink', daemon.socketPath);
});

afterEach(async () => {
  sink.kill('SIGKILL');
  await provider.close();
  await daemon.clean();
});

function residentBytes(): number {
  const status = readFileSync(`/proc/${daemon.pid}/status`, 'latin1');
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}

/** Posts Writes into the sink's memory while they complete. */
class Writer {
  /** Bytes of completed Writes. */
  bytes = 0;
  readonly #connection: Connection;
  readonly done: Promise<void>;

  constructor(connection: Connection, source: MR) {
    this.#connection = connection;
    this.done = this.#run(source);
  }

  async #run(source: MR): Promise<void> {
    const { qp, cq, established } = this.#connection;
    const peer = parseRegion(established.privateData);
    const wr: SendWR = {
      opcode: WROpcode.rdmaWrite,
      flags: SendFlag.signaled,
      sgList: [source.sge()],
      remoteAddr: peer.address,
      rkey: peer.rkey,
    };
    for (let posted = 0; posted < DEPTH; posted += 1) qp.postSend(wr);
    for (;;) {
      for (const { status } of await cq.wait()) {
        if (status !== 0) return;
        this.bytes += source.buffer.length;
        qp.postSend(wr);
      }
    }
  }
}

async function roundTrip(): Promise<void> {
  const { client, server } = pair;
  server.connection.qp.postRecv({ sgList: [server.mr.sge()] });
  client.mr.buffer.set(pattern(64));
  client.connection.qp.postSend(send([client.mr.sge(0, 64)]));
  await Promise.all([completions(server.connection.cq), completions(client.connection.cq)]);
}

it('costs no memory while stopped, and its peer resumes when it does', async () => {
  const port = Number(await printed(sink, /listens on (\d+)/));
  const context = await provider.open();
  const pd = await context.allocPD();
  const source = await pd.allocMR(REGION_BYTES, Access.localWrite);
  const writers: Writer[] = [];
  for (let count = 0; count < 4; count += 1) {
    const connection = await connect(provider, { host: '127.0.0.1', port, pd });
    writers.push(new Writer(connection, source));
  }
  const written = () => writers.reduce((sum, { bytes }) => sum + bytes, 0);
  await expect.poll(written).toBeGreaterThan(64 * 2 ** 20);
  const before = residentBytes();
  sink.kill('SIGSTOP');
  await quiet(STOPPED_MS);
  await roundTrip();
  const cost = residentBytes() - before;
  const stalledAt = written();
  await quiet(200);
  // Its peers wait as well: TCP is full.
  expect(written()).toBe(stalledAt);
  expect(cost).toBeLessThan(COST_MAX_BYTES);
  sink.kill('SIGCONT');
  await expect.poll(written).toBeGreaterThan(stalledAt + 64 * 2 ** 20);
  // One that never continues does not delay others either.
  sink.kill('SIGSTOP');
  await quiet(100);
  sink.kill('SIGKILL');
  await Promise.all(writers.map(({ done }) => done));
  await roundTrip();
});
