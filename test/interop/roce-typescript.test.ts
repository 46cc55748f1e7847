/** TypeScript programs and unmodified ones on a RoCE device: they exchange QP number and GID by TCP. */
import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  Access,
  MTU,
  QPState,
  QPType,
  RDMA_UDP_QKEY,
  SendFlag,
  WCFlag,
  WROpcode,
} from '#contract/verbs/enums';
import { GRH_BYTES } from '#contract/verbs/gid';
import type { Context, Provider, QP } from '#contract/verbs/provider';
import type { DatagramDestination } from '#contract/verbs/work-request';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { type DatagramEndpoint, listenDatagrams, resolveDatagrams } from '#verbs-api/datagrams';
import { freePort } from '../support/free-port.ts';
import { patient, until } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { describeWith } from '../support/prerequisites.ts';
import { completions, SUCCESS, sameBytes } from '../support/provider-fixture.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { listens, ShimProgram } from '../support/shim-programs.ts';

const ADDRESS = '127.0.72.9';
const ITERATIONS = 20;
const MESSAGE_BYTES = 700;
const SGID_INDEX = 1;
const PSN = 0xff_fff0;
/** As used by ibv_ud_pingpong. */
const QKEY = 0x1111_1111;

/** Parameters that rdma-core's ping-pongs exchange. */
interface Destination {
  readonly qpn: number;
  readonly psn: number;
  readonly gid: string;
}

let rig: RoceRig;
let provider: Provider;

beforeAll(async () => {
  rig = await RoceRig.start({ name: 'roce0', addresses: [ADDRESS], transport: 'roce' });
  provider = await connectDaemon({ socketPath: rig.socketPath });
});

afterAll(async () => {
  await provider.close();
  await rig.stop();
});

function textOf({ qpn, psn, gid }: Destination): string {
  const hex = (value: number): string => value.toString(16).padStart(6, '0');
  return `0000:${hex(qpn)}:${hex(psn)}:${gid.replaceAll(':', '')}\0`;
}

function parse(text: string): Destination {
  const [, qpn = '', psn = '', gid = ''] = text.replace('\0', '').split(':');
  return {
    qpn: Number.parseInt(qpn, 16),
    psn: Number.parseInt(psn, 16),
    gid: gid.replace(/(.{4})(?!$)/g, '$1:'),
  };
}

/** Sends our destination; returns the server's. */
async function exchange(socket: Socket, own: Destination): Promise<Destination> {
  const text = textOf(own);
  socket.write(text);
  let answer = '';
  while (answer.length < text.length) {
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    answer += chunk.toString('latin1');
  }
  return parse(answer);
}

async function connectQP(qp: QP, peer: Destination): Promise<void> {
  const place = { state: QPState.INIT, pkeyIndex: 0, portNum: 1 };
  if (qp.type === QPType.ud) {
    await qp.modify({ ...place, qkey: QKEY });
    await qp.modify({ state: QPState.RTR });
    await qp.modify({ state: QPState.RTS, sqPsn: PSN });
    return;
  }
  const reliable = qp.type === QPType.rc;
  await qp.modify({ ...place, accessFlags: Access.none });
  await qp.modify({
    state: QPState.RTR,
    ahAttr: { grh: { dgid: peer.gid, sgidIndex: SGID_INDEX } },
    pathMtu: MTU.mtu1024,
    destQpNum: peer.qpn,
    rqPsn: peer.psn,
    ...(reliable ? { maxDestRdAtomic: 1, minRnrTimer: 12 } : {}),
  });
  const retries = { timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 1 };
  await qp.modify({ state: QPState.RTS, sqPsn: PSN, ...(reliable ? retries : {}) });
}

async function ownGid(context: Context): Promise<string> {
  const table = await context.queryGidTable();
  return table.find(({ gidIndex }) => gidIndex === SGID_INDEX)?.gid ?? '';
}

describeWith(['rdma-programs'], 'a TypeScript client of an unmodified server', () => {
  it.each([
    ['ibv_rc_pingpong', QPType.rc],
    ['ibv_uc_pingpong', QPType.uc],
    ['ibv_ud_pingpong', QPType.ud],
  ])('%s returns every message', async (program, type) => {
    const port = await freePort();
    const words = [program, '-g', '1', '-p', `${port}`, '-n', `${ITERATIONS}`];
    const server = new ShimProgram([...words, '-s', `${MESSAGE_BYTES}`], rig.environment);
    await listens(port, server);
    await using context = await provider.open('roce0');
    const pd = await context.allocPD();
    const cq = await context.createCQ({ cqe: 16 });
    const mr = await pd.allocMR(4096, Access.localWrite);
    const qp = await pd.createQP({ type, sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });
    const socket = connectTcp(port, '127.0.0.1');
    const own = { qpn: qp.qpNum, psn: PSN, gid: await ownGid(context) };
    const peer = await exchange(socket, own);
    await connectQP(qp, peer);
    const datagrams = type === QPType.ud;
    const head = datagrams ? GRH_BYTES : 0;
    const ud = datagrams
      ? {
          ah: await pd.createAH({ grh: { dgid: peer.gid, sgidIndex: SGID_INDEX } }),
          remoteQpNum: peer.qpn,
          remoteQkey: QKEY,
        }
      : undefined;
    socket.write('done\0');
    for (let round = 0; round < ITERATIONS; round += 1) {
      const sent = pattern(MESSAGE_BYTES, round);
      mr.buffer.set(sent);
      qp.postRecv({ sgList: [mr.sge(2048, head + MESSAGE_BYTES)] });
      qp.postSend({ opcode: WROpcode.send, sgList: [mr.sge(0, MESSAGE_BYTES)], ud });
      // Both ends of the program's loop use one buffer, so it returns what it received.
      expect(await completions(cq)).toMatchObject([
        { ...SUCCESS, byteLen: head + MESSAGE_BYTES, srcQp: datagrams ? peer.qpn : 0 },
      ]);
      const returned = mr.buffer.subarray(2048 + head, 2048 + head + MESSAGE_BYTES);
      expect(sameBytes(returned, sent), `round ${round}`).toBe(true);
    }
    const { status, output } = await server.end();
    expect(status, output).toBe(0);
    expect(output).toMatch(new RegExp(`^${ITERATIONS} iters in`, 'm'));
    socket.destroy();
  });
});

/** The port of udaddy, its messages, and their bytes without the route header. */
const UDADDY_PORT = 7174;
const UDADDY_COUNT = 10;
const UDADDY_BYTES = 100;

/** Receives of udaddy's messages. */
async function receiveAll({ pd, qp }: Pick<DatagramEndpoint, 'pd' | 'qp'>): Promise<Uint8Array> {
  const mr = await pd.allocMR(UDADDY_COUNT * 256, Access.localWrite);
  for (let index = 0; index < UDADDY_COUNT; index += 1) {
    qp.postRecv({ sgList: [mr.sge(256 * index, GRH_BYTES + UDADDY_BYTES)] });
  }
  return mr.buffer;
}

/** Sends as udaddy does, with its queue pair's number as immediate data. */
async function sendAll({ pd, qp, cq }: DatagramEndpoint, ud: DatagramDestination): Promise<void> {
  const mr = await pd.allocMR(UDADDY_BYTES, Access.localWrite);
  for (let index = 0; index < UDADDY_COUNT; index += 1) {
    qp.postSend({
      opcode: WROpcode.sendWithImm,
      flags: SendFlag.signaled,
      sgList: [mr.sge()],
      immData: qp.qpNum,
      ud,
    });
  }
  for (const wc of await completions(cq, UDADDY_COUNT)) expect(wc).toMatchObject(SUCCESS);
}

/** A signal for waits that must not outlast the test. */
function patience(): AbortSignal {
  return patient();
}

describeWith(['rdma-programs'], 'services of datagrams', () => {
  it('of udaddy are found by a TypeScript program, and reply to it', async () => {
    const server = new ShimProgram(['udaddy', '-b', ADDRESS], rig.environment);
    await until('udaddy to listen', () => rig.listens(UDADDY_PORT));
    await using service = await resolveDatagrams(provider, {
      host: ADDRESS,
      port: UDADDY_PORT,
      signal: patience(),
      prepare: async (parts) => void (await receiveAll(parts)),
    });
    const { destination, cq } = service;
    expect(destination.remoteQkey).toBe(RDMA_UDP_QKEY);
    await sendAll(service, destination);
    for (const wc of await completions(cq, UDADDY_COUNT)) {
      expect(wc).toMatchObject({
        ...SUCCESS,
        srcQp: destination.remoteQpNum,
        byteLen: GRH_BYTES + UDADDY_BYTES,
        wcFlags: WCFlag.grh | WCFlag.withImm,
      });
    }
    const { status, output } = await server.end();
    expect(status, output).toBe(0);
    expect(output).toContain('data transfers complete');
  });

  it('of a TypeScript program are found by udaddy, which is answered', async () => {
    await using listener = await listenDatagrams(provider, { host: ADDRESS, port: UDADDY_PORT });
    const client = new ShimProgram(['udaddy', '-s', ADDRESS], rig.environment);
    let buffer: Uint8Array = new Uint8Array(0);
    await using endpoint = await listener.accept({
      signal: patience(),
      prepare: async (parts) => {
        buffer = await receiveAll(parts);
      },
    });
    const received = await completions(endpoint.cq, UDADDY_COUNT);
    const [first] = received;
    for (const wc of received) {
      expect(wc).toMatchObject({ ...SUCCESS, byteLen: GRH_BYTES + UDADDY_BYTES });
      expect(Number(wc.immData)).toBe(first?.srcQp);
    }
    if (first === undefined) throw new Error('nothing came');
    await sendAll(endpoint, await endpoint.answerTo(first, buffer));
    const { status, output } = await client.end();
    expect(status, output).toBe(0);
    expect(output).toContain('data transfers complete');
  });

  it('that a TypeScript program has closed are not found by udaddy', async () => {
    const listener = await listenDatagrams(provider, { host: ADDRESS, port: UDADDY_PORT });
    await listener.close();
    const client = new ShimProgram(['udaddy', '-s', ADDRESS], rig.environment);
    const { status, output } = await client.end();
    expect(status, output).not.toBe(0);
    expect(output).toContain('RDMA_CM_EVENT_UNREACHABLE, error: 1');
  });
});
