/** A daemon with two devices, `left` and `right`, and connections between them for faults to act on. */
import type { FaultSpec } from '#contract/protocol/faults';
import type { AsyncEvent, WC } from '#contract/verbs/completion';
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { Context, MR, Provider } from '#contract/verbs/provider';
import type { DeviceConfig } from '#daemon/host/device-config';
import {
  type ConnectionRequest,
  type ConnectOptions,
  connect,
  type EndpointOptions,
  type Listener,
  listen,
} from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { type InjectedFault, withFault } from '#verbs-api/testing/index';
import { DaemonRig } from './daemon-rig.ts';

const LEFT = '127.0.0.2';
const RIGHT = '127.0.0.3';
const BUFFER_BYTES = 65_536;
const RECEIVES = 16;

/** One end of a connection, with memory for what it sends (first half) and receives (second half). */
export interface FaultEnd extends Connection {
  readonly mr: MR;
  readonly events: AsyncEvent[];
}

export class FaultPair {
  readonly rig: DaemonRig;
  readonly provider: Provider;
  readonly listener: Listener;

  private constructor(rig: DaemonRig, provider: Provider, listener: Listener) {
    this.rig = rig;
    this.provider = provider;
    this.listener = listener;
  }

  /** `wire` holds the wire options of the device `right`. */
  static async start(wire: NonNullable<DeviceConfig['wire']> = {}): Promise<FaultPair> {
    const devices = [
      { name: 'left', addresses: [LEFT] },
      { name: 'right', addresses: [RIGHT], wire },
    ];
    const rig = await DaemonRig.start({ devices, native: false, http: {} });
    const provider = await connectDaemon({ socketPath: rig.socketPath });
    return new FaultPair(rig, provider, await listen(provider, { host: RIGHT }));
  }

  async stop(): Promise<void> {
    await this.provider.close();
    await this.rig.stop();
  }

  /** A fault on the daemon while `body` runs. */
  async withFault<T>(spec: FaultSpec, body: (fault: InjectedFault) => Promise<T>): Promise<T> {
    return await withFault(spec, body, { socketPath: this.rig.socketPath });
  }

  /** Connects from left to right; both ends have receives posted. */
  async connect(
    options: Partial<ConnectOptions> = {},
  ): Promise<{ readonly left: FaultEnd; readonly right: FaultEnd }> {
    const accepting = this.nextRequest().then((request) => accepted(request));
    // The dial may fail first.
    accepting.catch(() => undefined);
    const memory: { mr?: MR } = {};
    const left = await this.dial({ ...options, prepare: preparing(memory) });
    return { left: endOf(left, memory), right: await accepting };
  }

  /** Connects from left to right, whatever the outcome. */
  async dial(options: Partial<ConnectOptions> = {}): Promise<Connection> {
    return await connect(this.provider, {
      host: RIGHT,
      port: this.listener.address.port,
      source: { address: LEFT, port: 0 },
      ...options,
    });
  }

  /** The next connect request at the right. */
  async nextRequest(): Promise<ConnectionRequest> {
    for await (const request of this.listener) return request;
    throw new Error('the listener is closed');
  }
}

async function accepted(request: ConnectionRequest): Promise<FaultEnd> {
  const memory: { mr?: MR } = {};
  const connection = await request.accept({ prepare: preparing(memory) });
  return endOf(connection, memory);
}

function preparing(memory: { mr?: MR }): NonNullable<EndpointOptions['prepare']> {
  return async ({ pd, qp }) => {
    const access = Access.localWrite | Access.remoteWrite | Access.remoteRead;
    const mr = await pd.allocMR(BUFFER_BYTES, access);
    memory.mr = mr;
    const half = BUFFER_BYTES / 2;
    for (let i = 0; i < RECEIVES; i += 1) {
      const each = half / RECEIVES;
      qp.postRecv({ wrId: BigInt(i), sgList: [mr.sge(half + i * each, each)] });
    }
  };
}

function endOf(connection: Connection, { mr }: { mr?: MR }): FaultEnd {
  if (mr === undefined) throw new Error('the end was not prepared');
  return Object.assign(connection, { mr, events: eventsOf(connection.context, connection.qp) });
}

/** Logs by context: connections share one, and each of its events goes to one loop only. */
const logs = new WeakMap<Context, { readonly qpNum: number | undefined; events: AsyncEvent[] }[]>();

/** The asynchronous events of a context as they arrive: with `qp`, without those of other QPs. */
export function eventsOf(context: Context, qp?: { readonly qpNum: number }): AsyncEvent[] {
  const events: AsyncEvent[] = [];
  const log = { qpNum: qp?.qpNum, events };
  const known = logs.get(context);
  if (known !== undefined) {
    known.push(log);
    return events;
  }
  const all = [log];
  logs.set(context, all);
  const collect = async (): Promise<void> => {
    for await (const event of context.asyncEvents()) {
      for (const { qpNum, events: sink } of all) {
        const mine = qpNum === undefined || event.qpNum === undefined || qpNum === event.qpNum;
        if (mine) sink.push(event);
      }
    }
  };
  // The loop ends with the context, or with the daemon.
  collect().catch(() => undefined);
  return events;
}

export function postSend({ qp, mr }: FaultEnd, length = 64): void {
  qp.postSend({ opcode: WROpcode.send, flags: SendFlag.signaled, sgList: [mr.sge(0, length)] });
}

/** Posts an RDMA Write of `length` bytes into the first half of the peer's memory. */
export function postWrite({ qp, mr }: FaultEnd, peer: FaultEnd, length = 64): void {
  qp.postSend({
    opcode: WROpcode.rdmaWrite,
    flags: SendFlag.signaled,
    sgList: [mr.sge(0, length)],
    remoteAddr: peer.mr.address,
    rkey: peer.mr.rkey,
  });
}

/** Posts an RDMA Read of `length` bytes from the first half of the peer's memory. */
export function postRead({ qp, mr }: FaultEnd, peer: FaultEnd, length = 64): void {
  qp.postSend({
    opcode: WROpcode.rdmaRead,
    flags: SendFlag.signaled,
    sgList: [mr.sge(0, length)],
    remoteAddr: peer.mr.address,
    rkey: peer.mr.rkey,
  });
}

/** Completions of an end until `count` have arrived. */
export async function completions({ cq }: FaultEnd, count: number): Promise<WC[]> {
  const found: WC[] = [];
  while (found.length < count) found.push(...(await cq.wait({ max: count - found.length })));
  return found;
}
