import { onTestFinished } from 'vitest';
import type { QPCapabilities } from '#contract/verbs/attributes';
import { Access, MTU, QPState, QPType } from '#contract/verbs/enums';
import type { Context, CQ, MR, PD, Provider, QP, QPInit } from '#contract/verbs/provider';
import { ALL_ACCESS, type StartedFixture } from './provider-fixture.ts';

/** The RoCE device of every fixture. */
export const ROCE_DEVICE = {
  name: 'roce0',
  transport: 'roce',
  addresses: ['127.0.0.1', '::1'],
} as const;
/** The GID of its IPv4 address is at this index, as on Linux's rxe. */
export const SGID_INDEX = 1;
/** Index of the GID of its IPv6 address. */
export const SGID_INDEX_IPV6 = 2;

/** Two providers whose devices `ROCE_DEVICE` and `DEVICE` are those of one host. */
export interface RoceFixture {
  start(): Promise<StartedFixture>;
}

/** One end: a queue pair with its queue for completions, and a region with all rights. */
export interface RoceSide extends AsyncDisposable {
  readonly context: Context;
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
  readonly mr: MR;
}

/** Parameters of a peer; programs exchange them by any means. */
interface Exchanged {
  readonly qpNum: number;
  readonly gid: string;
}

/** Attributes of the steps that a test changes. */
interface PathChanges {
  readonly access?: Access;
  readonly rnrRetry?: number;
  readonly retryCnt?: number;
  readonly timeout?: number;
  readonly destQpNum?: number;
  readonly sqPsn?: number;
}

const PSN = 0xff_fffe;
/** 4.096 µs · 2^12, about 17 ms. */
const TIMEOUT = 12;
const SIZES: Pick<QPCapabilities, 'maxSendWr' | 'maxRecvWr' | 'maxInlineData' | 'maxSendSge'> = {
  maxSendWr: 32,
  maxRecvWr: 32,
  maxInlineData: 64,
  maxSendSge: 5,
};
const RIGHTS = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;
const MEMORY_BYTES = 65_536;

/** A queue pair of a type in RESET, with its resources. */
export async function roceSide(
  provider: Provider,
  type: QPType = QPType.rc,
  init: Partial<QPInit> = {},
  device: string = ROCE_DEVICE.name,
): Promise<RoceSide> {
  const context = await provider.open(device);
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: 128 });
  const mr = await pd.allocMR(MEMORY_BYTES, ALL_ACCESS);
  const qp = await pd.createQP({ type, sendCQ: cq, recvCQ: cq, ...SIZES, ...init });
  return { context, pd, cq, qp, mr, [Symbol.asyncDispose]: () => context.close() };
}

/** Parameters for the peer of this side. */
export async function exchanged({ context, qp }: RoceSide): Promise<Exchanged> {
  const table = await context.queryGidTable();
  const gid = table.find(({ gidIndex }) => gidIndex === SGID_INDEX)?.gid ?? '';
  return { qpNum: qp.qpNum, gid };
}

/** Moves a queue pair of type RC or UC from RESET to RTS, connected to `peer`. */
export async function connectTo(qp: QP, peer: Exchanged, changes: PathChanges = {}): Promise<void> {
  const reliable = qp.type === QPType.rc;
  const accessFlags = changes.access ?? RIGHTS;
  await qp.modify({ state: QPState.INIT, pkeyIndex: 0, portNum: 1, accessFlags });
  await qp.modify({
    state: QPState.RTR,
    ahAttr: { grh: { dgid: peer.gid, sgidIndex: SGID_INDEX } },
    pathMtu: MTU.mtu1024,
    destQpNum: changes.destQpNum ?? peer.qpNum,
    rqPsn: PSN,
    ...(reliable ? { maxDestRdAtomic: 4, minRnrTimer: 1 } : {}),
  });
  const { timeout = TIMEOUT, retryCnt = 7, rnrRetry = 7 } = changes;
  await qp.modify({
    state: QPState.RTS,
    sqPsn: changes.sqPsn ?? PSN,
    ...(reliable ? { timeout, retryCnt, rnrRetry, maxRdAtomic: 4 } : {}),
  });
}

/** Moves a queue pair of type UD to RTS. */
export async function readyForDatagrams(qp: QP, qkey: number): Promise<void> {
  await qp.modify({ state: QPState.INIT, pkeyIndex: 0, portNum: 1, qkey });
  await qp.modify({ state: QPState.RTR });
  await qp.modify({ state: QPState.RTS, sqPsn: 0 });
}

/** Two sides of a type; those of RC and UC are connected. */
interface RocePair extends AsyncDisposable {
  readonly server: RoceSide;
  readonly client: RoceSide;
}

/** Connects a queue pair of each provider, or makes both ready for datagrams with key 1. */
export async function rocePair(
  fixture: StartedFixture,
  type: QPType = QPType.rc,
  changes: { readonly server?: PathChanges; readonly client?: PathChanges } = {},
  init: Partial<QPInit> = {},
): Promise<RocePair> {
  const server = await roceSide(fixture.server, type, init);
  const client = await roceSide(fixture.client, type, init);
  if (type === QPType.ud) {
    await readyForDatagrams(server.qp, 1);
    await readyForDatagrams(client.qp, 1);
  } else {
    await connectTo(server.qp, await exchanged(client), changes.server);
    await connectTo(client.qp, await exchanged(server), changes.client);
  }
  return {
    server,
    client,
    async [Symbol.asyncDispose]() {
      await Promise.all([server.context.close(), client.context.close()]);
    },
  };
}

/** A pair as from `rocePair`, which is closed when the test ends. */
export async function rocePairOfTest(...pair: Parameters<typeof rocePair>): Promise<RocePair> {
  const made = await rocePair(...pair);
  onTestFinished(() => made[Symbol.asyncDispose]());
  return made;
}
