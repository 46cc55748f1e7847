/** Parts of `user-programs.ts` on the RoCE device of a daemon: one has a queue pair, one attacks it. */
import { Access, MTU, QPState, QPType, WROpcode } from '#contract/verbs/enums';
import type { Context, CQ, QP } from '#contract/verbs/provider';
import { patient } from '#test/support/patience';
import { connectDaemon } from '#verbs-api/connect-daemon';

const GID_INDEX = 1;
const BYTES = 64;

/** The attacker's operations on memory. */
type Transfer = typeof WROpcode.rdmaWrite | typeof WROpcode.rdmaRead;

/** A context with the resources of a queue pair. */
async function openRoce(context: Context) {
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: 8 });
  const mr = await pd.allocMR(BYTES, Access.localWrite | Access.remoteWrite | Access.remoteRead);
  const queues = { sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 };
  const gids = await context.queryGidTable();
  const dgid = gids.find(({ gidIndex }) => gidIndex === GID_INDEX)?.gid ?? '';
  return { cq, mr, dgid, make: () => pd.createQP({ type: QPType.rc, ...queues }) };
}

/** Connects a queue pair to one of this number on the same device; it fails soon. */
async function connect(qp: QP, destQpNum: number, dgid: string): Promise<void> {
  const accessFlags = Access.remoteWrite | Access.remoteRead;
  await qp.modify({ state: QPState.INIT, pkeyIndex: 0, portNum: 1, accessFlags });
  const ahAttr = { grh: { dgid, sgidIndex: GID_INDEX } };
  const depths = { maxDestRdAtomic: 1, minRnrTimer: 12, rqPsn: 0 };
  await qp.modify({ state: QPState.RTR, ahAttr, pathMtu: MTU.mtu1024, destQpNum, ...depths });
  const retries = { timeout: 8, retryCnt: 1, rnrRetry: 0, maxRdAtomic: 1 };
  await qp.modify({ state: QPState.RTS, sqPsn: 0, ...retries });
}

/** A queue pair that is connected to another of its context, with memory and a queue for both. */
export async function connectPair(context: Context) {
  const { cq, mr, dgid, make } = await openRoce(context);
  const [qp, other] = [await make(), await make()];
  await connect(qp, other.qpNum, dgid);
  await connect(other, qp.qpNum, dgid);
  return { qp, cq, mr };
}

/** Creates a connected pair and a region, and prints their state at the end. */
export async function roceVictim(path: string, say: (line: string) => void): Promise<void> {
  await using provider = await connectDaemon({ socketPath: path });
  const { mr, dgid, make } = await openRoce(await provider.open('r'));
  const [one, two] = [await make(), await make()];
  await connect(one, two.qpNum, dgid);
  await connect(two, one.qpNum, dgid);
  say(`pair ${one.qpNum} key ${mr.rkey} address ${mr.address}`);
  await new Promise((resolve) => process.stdin.on('end', resolve).resume());
  const states = await Promise.all([one, two].map(async (qp) => (await qp.query()).state));
  say(JSON.stringify({ states, changed: mr.buffer.some((byte) => byte !== 0) }));
}

/** Attacks the queue pair and the region named by `words`, and prints the results. */
export async function roceThief(
  path: string,
  words: readonly string[],
  say: (line: string) => void,
): Promise<void> {
  const [qpNum = 0, rkey = 0, remoteAddr = 0] = words.map(Number);
  await using provider = await connectDaemon({ socketPath: path });
  const { cq, mr, dgid, make } = await openRoce(await provider.open('r'));
  mr.buffer.fill(0xee);
  const outcome = async (qp: QP, opcode: Transfer): Promise<number> => {
    qp.postSend({ opcode, sgList: [mr.sge(0, BYTES)], remoteAddr, rkey });
    return await statusOf(cq);
  };
  const toTheirs = await make();
  await connect(toTheirs, qpNum, dgid);
  const unanswered = await outcome(toTheirs, WROpcode.rdmaWrite);
  const refused: number[] = [];
  for (const opcode of [WROpcode.rdmaWrite, WROpcode.rdmaRead] as const) {
    const [own, other] = [await make(), await make()];
    await connect(own, other.qpNum, dgid);
    await connect(other, own.qpNum, dgid);
    refused.push(await outcome(own, opcode));
  }
  say(JSON.stringify({ unanswered, refused, read: mr.buffer.some((byte) => byte !== 0xee) }));
}

async function statusOf(cq: CQ): Promise<number> {
  const [completion] = await cq.wait({ max: 1, signal: patient() });
  return completion?.status ?? -1;
}
