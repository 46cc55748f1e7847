/** One client of an RNIC, in a separate process, run as a worker of the bench. */
import { performance } from 'node:perf_hooks';
import { CMEventType } from '#contract/verbs/enums';
import type { ConnectionId, Context, CQ, PD, Provider } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/index';
import { createEmbedded } from '../embedded/embedded-provider.ts';
import { serveCalls } from './channel.ts';
import { type BenchMemory, VerbsTraffic } from './verbs-traffic.ts';

export type ProviderChoice =
  | { readonly kind: 'daemon'; readonly socketPath: string }
  | { readonly kind: 'embedded'; readonly address: string };

/** An address and a port to connect to. */
export interface Meeting {
  readonly address: string;
  readonly port: number;
}

interface Device {
  readonly provider: Provider;
  readonly context: Context;
  readonly pd: PD;
}

let device: Device | undefined;
let traffic: VerbsTraffic | undefined;
let listener: ConnectionId | undefined;
const held: ConnectionId[] = [];
let heldCQ: CQ | undefined;

const methods = {
  async open(choice: ProviderChoice): Promise<void> {
    const provider =
      choice.kind === 'daemon'
        ? await connectDaemon({ socketPath: choice.socketPath })
        : await createEmbedded({ devices: [{ name: 'bench0', addresses: [choice.address] }] });
    const context = await provider.open();
    device = { provider, context, pd: await context.allocPD() };
  },

  /** Listens on a free port; returns it. */
  async listen({ address }: { address: string }): Promise<Meeting> {
    listener = await opened().provider.createId();
    await listener.bindAddr({ address, port: 0 });
    await listener.listen(1024);
    return { address, port: listener.localAddress?.port ?? 0 };
  },

  /** Accepts one connection; returns the location of its memory. */
  async accept(_: undefined): Promise<BenchMemory> {
    const id = await nextRequest();
    traffic = await VerbsTraffic.create(opened().context, opened().pd, id);
    await id.accept({});
    return traffic.memory;
  },

  /** Connects to the twin; returns the location of its memory. */
  async connect({ address, port }: Meeting): Promise<BenchMemory> {
    const id = await opened().provider.createId();
    await id.resolveAddr({ address, port });
    traffic = await VerbsTraffic.create(opened().context, opened().pd, id);
    await id.connect({});
    return traffic.memory;
  },

  async disconnect(_: undefined): Promise<void> {
    await traffic?.close();
    traffic = undefined;
  },

  /** Fills the region with bytes that identify their position. */
  fill(_: undefined): void {
    const { bytes } = connected();
    for (let index = 0; index < bytes.length; index++) bytes[index] = patternByte(index);
  },

  /** Throws unless the first bytes of the region are as `fill` left the twin's; clears them. */
  verify({ lengthBytes }: { lengthBytes: number }): void {
    const bytes = connected().bytes.subarray(0, lengthBytes);
    for (let index = 0; index < bytes.length; index++) {
      if (bytes[index] !== patternByte(index)) {
        throw new Error(`byte ${index} of what was written is ${bytes[index]}`);
      }
    }
    bytes.fill(0);
  },

  /** Seconds that the writes took. */
  async write(argument: {
    remote: BenchMemory;
    writeBytes: number;
    count: number;
    batch: number;
  }): Promise<number> {
    const { remote, writeBytes, count, batch } = argument;
    return await timed(() => connected().write(remote, writeBytes, count, batch));
  },

  async answer(_: undefined): Promise<void> {
    await connected().answer();
  },

  /** Seconds of one round trip. */
  async ping({ sizeBytes, count }: { sizeBytes: number; count: number }): Promise<number> {
    return (await timed(() => connected().ping(sizeBytes, count))) / count;
  },

  async echo({ sizeBytes, count }: { sizeBytes: number; count: number }): Promise<void> {
    await connected().echo(sizeBytes, count);
  },

  /** Seconds that the messages took. */
  async sendStream(argument: { sizeBytes: number; count: number; batch: number }): Promise<number> {
    const { sizeBytes, count, batch } = argument;
    return await timed(() => connected().sendStream(sizeBytes, count, batch));
  },

  async receiveStream({ count }: { count: number }): Promise<void> {
    await connected().receiveStream(count);
  },

  /** Accepts `count` connections, each with its own QP, and holds them. */
  async acceptMany({ count }: { count: number }): Promise<void> {
    const accepted: Promise<void>[] = [];
    while (accepted.length < count) accepted.push(acceptHeld(await nextRequest()));
    await Promise.all(accepted);
  },

  /** Establishes `count` connections, `width` at a time, and holds them; returns seconds. */
  async connectMany(argument: Meeting & { count: number; width: number }): Promise<number> {
    let left = argument.count;
    return await timed(async () => {
      await Promise.all(
        Array.from({ length: argument.width }, async () => {
          while (left > 0) {
            left -= 1;
            await connectHeld(argument);
          }
        }),
      );
    });
  },

  async closeMany(_: undefined): Promise<void> {
    await Promise.all(held.splice(0).map((id) => id.close()));
  },

  async close(_: undefined): Promise<void> {
    await device?.provider.close();
    device = undefined;
  },
};

export type VerbsMethods = typeof methods;

function opened(): Device {
  if (device === undefined) throw new Error('the device is not open');
  return device;
}

function connected(): VerbsTraffic {
  if (traffic === undefined) throw new Error('not connected');
  return traffic;
}

function patternByte(index: number): number {
  return (index * 7 + (index >> 8)) & 0xff;
}

async function timed(run: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await run();
  return (performance.now() - start) / 1000;
}

async function nextRequest(): Promise<ConnectionId> {
  if (listener === undefined) throw new Error('nothing listens');
  for (;;) {
    const event = await listener.nextEvent();
    if (event.type === CMEventType.connectRequest) return event.id;
  }
}

async function connectHeld({ address, port }: Meeting): Promise<void> {
  const id = await opened().provider.createId();
  held.push(id);
  await id.resolveAddr({ address, port });
  await createHeldQP(id);
  await id.connect({});
}

async function acceptHeld(id: ConnectionId): Promise<void> {
  held.push(id);
  await createHeldQP(id);
  await id.accept({});
}

async function createHeldQP(id: ConnectionId): Promise<void> {
  const { context, pd } = opened();
  heldCQ ??= await context.createCQ({ cqe: 64 });
  await id.createQP(pd, { sendCQ: heldCQ, recvCQ: heldCQ, maxSendWr: 16, maxRecvWr: 16 });
}

serveCalls(methods);
