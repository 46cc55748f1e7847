/**
 * The bench's client of a native device, in a separate process, and the peer that it writes to. Its
 * `postPoll` is test/bench/probe/post-poll.c in TypeScript.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { WC } from '#contract/verbs/completion';
import {
  Access,
  CMEventType,
  SendFlag,
  WC_STATUS_TEXT,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { ConnectionId, CQ, Provider, QP } from '#contract/verbs/provider';
import type { SendWR } from '#contract/verbs/work-request';
import { connectDaemon } from '#verbs-api/index';
import { createNative } from '#verbs-api/native/native-provider';
import { serveCalls } from './channel.ts';
import type { BenchMemory } from './verbs-traffic.ts';
import type { Meeting } from './verbs-worker.ts';

export interface BatchTimes {
  /** Median of a batch: the posting call plus the polling call, in nanoseconds. */
  readonly medianNs: number;
  /** Number of batches that counted. */
  readonly counted: number;
}

/** Work requests per batch, and bytes of each, as in the C program. */
const BATCH = 16;
const MESSAGE_BYTES = 64;
/** Pause between a post and its poll, as in the C program. */
const PAUSE_MS = 0.2;
/** Pauses after which a batch is lost. */
const PAUSES_MAX = 50_000;
/** Bytes of the private data that says where to write: address and rkey, big-endian. */
const PLACE_BYTES = 12;
/** Time for completions to accumulate before they are drained. */
const SETTLE_MS = 300;

let provider: Provider | undefined;
const sleeper = new Int32Array(new SharedArrayBuffer(4));

/** A connection to the peer, with one CQ for its sends. */
interface Sender {
  readonly cq: CQ;
  readonly qp: QP;
  /** `BATCH` signalled RDMA Writes. */
  readonly requests: readonly SendWR[];
  close(): Promise<void>;
}

const methods = {
  async openNative(_: undefined): Promise<void> {
    provider = await createNative();
  },

  async openDaemon({ socketPath }: { socketPath: string }): Promise<void> {
    provider = await connectDaemon({ socketPath });
  },

  /** Registers memory for every client that connects; returns the address. */
  async serve({ address }: { address: string }): Promise<Meeting> {
    const listener = await opened().createId();
    await listener.bindAddr({ address, port: 0 });
    await listener.listen();
    void serveClients(listener);
    return { address, port: listener.localAddress?.port ?? 0 };
  },

  /** Times batches; the first `warmUps` do not count. */
  async postPoll(argument: {
    meeting: Meeting;
    warmUps: number;
    batches: number;
  }): Promise<BatchTimes> {
    const { meeting, warmUps, batches } = argument;
    const sender = await connect(meeting, BATCH * 2);
    try {
      const times: number[] = [];
      for (let batch = -warmUps; batch < batches; batch += 1) {
        const spent = oneBatch(sender);
        if (batch >= 0 && spent !== undefined) times.push(spent);
      }
      times.sort((left, right) => left - right);
      const medianMs = times[times.length >> 1] ?? Number.NaN;
      return { medianNs: medianMs * 1e6, counted: times.length };
    } finally {
      await sender.close();
    }
  },

  /** Longest stall of the event loop, in milliseconds, while `count` completions are taken. */
  async drain({ meeting, count }: { meeting: Meeting; count: number }): Promise<number> {
    const sender = await connect(meeting, count);
    try {
      for (let posted = 0; posted < count; posted += BATCH) sender.qp.postSend(sender.requests);
      await sleep(SETTLE_MS);
      return await longestStall(async () => {
        let left = count;
        for await (const wc of sender.cq) {
          check(wc);
          left -= 1;
          if (left === 0) return;
        }
      });
    } finally {
      await sender.close();
    }
  },
};

export type NativeMethods = typeof methods;

function opened(): Provider {
  if (provider === undefined) throw new Error('no provider is open');
  return provider;
}

async function serveClients(listener: ConnectionId): Promise<void> {
  const context = await opened().open();
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: BATCH });
  const region = await pd.allocMR(BATCH * MESSAGE_BYTES, Access.localWrite | Access.remoteWrite);
  const place = new DataView(new ArrayBuffer(PLACE_BYTES));
  place.setBigUint64(0, region.address);
  place.setUint32(8, region.rkey);
  for await (const event of listener.events()) {
    if (event.type !== CMEventType.connectRequest) continue;
    await event.id.createQP(pd, { sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 });
    await event.id.accept({ privateData: new Uint8Array(place.buffer) });
    void closeAtEnd(event.id);
  }
}

async function closeAtEnd(id: ConnectionId): Promise<void> {
  for await (const event of id.events()) {
    if (event.type === CMEventType.disconnected) break;
  }
  await id.close();
}

async function connect({ address, port }: Meeting, depth: number): Promise<Sender> {
  const id = await opened().createId();
  await id.resolveAddr({ address, port });
  await id.resolveRoute();
  const context = await opened().open(id.device);
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: depth });
  const qp = await id.createQP(pd, { sendCQ: cq, recvCQ: cq, maxSendWr: depth, maxRecvWr: 1 });
  const source = await pd.allocMR(BATCH * MESSAGE_BYTES, Access.localWrite);
  const { privateData } = await id.connect({ initiatorDepth: 1, responderResources: 1 });
  const remote = remotePlace(privateData);
  const requests = Array.from({ length: BATCH }, (_, index) => ({
    wrId: index,
    opcode: WROpcode.rdmaWrite,
    sgList: [source.sge(index * MESSAGE_BYTES, MESSAGE_BYTES)],
    remoteAddr: remote.address + BigInt(index * MESSAGE_BYTES),
    rkey: remote.rkey,
    flags: SendFlag.signaled,
  }));
  return {
    cq,
    qp,
    requests,
    async close() {
      await id.close();
      await context.close();
    },
  };
}

function remotePlace(privateData: Uint8Array): BenchMemory {
  if (privateData.length < PLACE_BYTES) throw new Error('the peer sent no address to write to');
  const place = new DataView(privateData.buffer, privateData.byteOffset, PLACE_BYTES);
  return { address: place.getBigUint64(0), rkey: place.getUint32(8) };
}

/** Milliseconds of the posting call and the polling call; undefined if several were needed. */
function oneBatch({ cq, qp, requests }: Sender): number | undefined {
  let start = performance.now();
  qp.postSend(requests);
  let spent = performance.now() - start;
  let parts = 0;
  let pauses = 0;
  for (let done = 0; done < BATCH; ) {
    Atomics.wait(sleeper, 0, 0, PAUSE_MS);
    pauses += 1;
    if (pauses > PAUSES_MAX) throw new Error('a batch did not complete');
    start = performance.now();
    const taken = cq.poll(BATCH);
    if (taken.length === 0) continue;
    spent += performance.now() - start;
    parts += 1;
    done += taken.length;
    for (const wc of taken) check(wc);
  }
  return parts === 1 ? spent : undefined;
}

function check(wc: WC): void {
  if (wc.status !== WCStatus.success) {
    throw new Error(`a work request failed: ${WC_STATUS_TEXT[wc.status]}`);
  }
}

/** The longest time between two turns of the event loop while `work` is in progress. */
async function longestStall(work: () => Promise<void>): Promise<number> {
  let longest = 0;
  let last = performance.now();
  let turn: NodeJS.Immediate;
  const look = (): void => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const next = (): void => {
    look();
    turn = setImmediate(next);
  };
  turn = setImmediate(next);
  try {
    await work();
  } finally {
    clearImmediate(turn);
  }
  look();
  return longest;
}

serveCalls(methods);
