import { expect, onTestFinished } from 'vitest';
import type { DeviceBackend } from '#contract/verbs/attributes';
import type { WC } from '#contract/verbs/completion';
import { Access, SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { ErrnoCode } from '#contract/verbs/errors';
import type {
  Context,
  CQ,
  MemoryTier,
  MR,
  MROptions,
  PD,
  Provider,
  SocketAddress,
} from '#contract/verbs/provider';
import type { PlainSendWR, ReadWR, SGE, WriteWR } from '#contract/verbs/work-request';
import { connect, type EndpointOptions, listen } from '#verbs-api/connect';
import type { Connection } from '#verbs-api/connection';
import { patient } from './patience.ts';

/** How a region of the suite gets its memory: from the device, or from the program. */
type MemoryKind = 'allocated' | 'own';

/** Optional features of the contract; a device without one fails with EOPNOTSUPP where it can. */
export type Lack =
  /** There is no device with small limits. */
  | 'nearLimits'
  /** Peers are reachable at one address only, and every address of the host belongs to a device. */
  | 'otherAddresses'
  /** Completions in error do not count as solicited, nor do solicited Sends (siw). */
  | 'solicitedEvents'
  /** A completion queue that overflows raises no event, and may never work again (siw). */
  | 'overflow'
  /** The accepting side raises its IRD to the peer's request (siw). */
  | 'smallerDepths'
  /** Queue pairs that fail raise no event (siw); completions and the connection show it. */
  | 'failureEvents'
  /** Failed requests complete in error, with an unspecified status and not always in order (siw). */
  | 'preciseFailures'
  /** Peers can read memory without the access right (siw of Linux 6.1). */
  | 'readRights'
  /** A malformed MPA Reply crashes the host: siw of Linux 6.1 dereferences a NULL pointer. */
  | 'foreignReplies'
  /** Connections are not TCP's, so a socket is no peer of theirs (RoCE, SCTP). */
  | 'tcp'
  /** Depths are rounded up to a power of two (RoCE). */
  | 'exactDepths'
  /** SQD drains the queue and leaves the connection (RoCE). */
  | 'closingDrain'
  /** A queue pair without an id needs attributes to enter INIT (RoCE). */
  | 'bareInit'
  /** A queue pair cannot end its connection with a reason for its peer (RoCE). */
  | 'terminate'
  | 'windows'
  | 'atomics'
  | 'immediateData'
  | 'localInvalidate'
  | 'chosenKeys'
  | 'chosenAddresses'
  | 'wireOptions'
  /** A queue pair that was connected or failed cannot go back to RESET. */
  | 'reset'
  /** Regions are in memory that the device allocates. */
  | 'ownMemory'
  /** A queue that is armed for solicited completions fires for every receive. */
  | 'solicitedOnly';

/** A provider under test: what the suite needs to know about it and how to create one. */
export interface ProviderFixture {
  /** Two providers that reach each other, over devices named `DEVICE` and `SMALL_DEVICE`. */
  start(): Promise<StartedFixture>;
  readonly tiers: Readonly<Record<MemoryKind, MemoryTier>>;
  /** Default: nothing. */
  readonly lacks?: ReadonlySet<Lack>;
  /** Default: emulated. */
  readonly backend?: DeviceBackend;
  /** Bytes of private data that a connect request carries. Default: 508. */
  readonly maxPrivateData?: number;
}

/** Whether the provider lacks something. */
export function lacks(fixture: ProviderFixture, lack: Lack): boolean {
  return fixture.lacks?.has(lack) === true;
}

/** The status of a failed request: any failure if the device does not report which. */
export function failure(fixture: ProviderFixture, status: WCStatus): unknown {
  if (!lacks(fixture, 'preciseFailures')) return status;
  return {
    asymmetricMatch: (other: unknown) => typeof other === 'number' && other !== WCStatus.success,
    toString: () => 'a failure',
  };
}

/** The kinds of memory that the provider registers. */
export function memoryKinds(fixture: ProviderFixture): readonly MemoryKind[] {
  return lacks(fixture, 'ownMemory') ? ['allocated'] : ['allocated', 'own'];
}

/**
 * The body of a test for an optional feature. On a provider without the feature, the same body must
 * fail with EOPNOTSUPP.
 */
export function needs<P extends readonly unknown[]>(
  fixture: ProviderFixture,
  lack: Lack,
  body: (...parameters: P) => Promise<void>,
): (...parameters: P) => Promise<void> {
  if (!lacks(fixture, lack)) return body;
  return (...parameters) => expect(body(...parameters)).rejects.toEqual(verbsError('EOPNOTSUPP'));
}

export interface StartedFixture {
  readonly server: Provider;
  readonly client: Provider;
  stop(): Promise<void>;
}

/** For a device whose addresses cannot be set: the addresses it has. */
const GIVEN = process.env['IWARPD_SUITE_ADDRESSES']?.split(',') ?? [];
const [IPV4 = '127.0.0.1', IPV6 = '::1', SMALL = '127.0.0.2'] = GIVEN;
/** The devices that every fixture has. */
export const DEVICE = { name: 'rnic0', addresses: [IPV4, IPV6] } as const;
/** A device with small limits, used by one test at a time. */
export const SMALL_DEVICE = { name: 'small0', addresses: [SMALL] } as const;
/** The small device does not wait long for a peer's reply. */
export const SMALL_WIRE = { startupTimeoutMicros: 300_000 } as const;
export const SMALL_PROFILE = {
  maxPd: 2,
  maxMr: 2,
  maxMw: 2,
  maxCq: 2,
  maxCqe: 16,
  maxSrq: 2,
  maxSrqWr: 16,
  maxQp: 2,
  maxQpWr: 16,
  irdMax: 2,
  ordMax: 2,
} as const;

/** All rights that a region can give. */
export const ALL_ACCESS =
  Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic | Access.mwBind;

/** A signal that aborts after longer than anything in this suite takes. */
export function patience(): AbortSignal {
  return patient();
}

/** One end of a connected pair. */
export interface Side {
  readonly provider: Provider;
  readonly context: Context;
  readonly pd: PD;
  readonly connection: Connection;
  readonly mr: MR;
}

/** A connected pair; `close` ends it and everything around it. */
export interface Pair extends AsyncDisposable {
  readonly server: Side;
  readonly client: Side;
}

/** Options of `connectedPair`; those of one side override the common ones. */
interface PairOptions {
  readonly address?: string;
  readonly memory?: MemoryKind;
  readonly memoryBytes?: number;
  readonly access?: number;
  readonly region?: MROptions;
  readonly endpoint?: EndpointOptions;
  readonly serverEndpoint?: EndpointOptions;
  readonly clientEndpoint?: EndpointOptions;
}

/** The rights that a program's own memory can give in every tier: an agent cannot do atomics. */
const OWN_ACCESS = ALL_ACCESS & ~Access.remoteAtomic;

/** Registers `lengthBytes` bytes of either kind. */
export async function region(
  pd: PD,
  memory: MemoryKind,
  lengthBytes: number,
  access: number = memory === 'own' ? OWN_ACCESS : ALL_ACCESS,
  options: MROptions = {},
): Promise<MR> {
  return memory === 'allocated'
    ? await pd.allocMR(lengthBytes, access, options)
    : await pd.regMR(new Uint8Array(lengthBytes), access, options);
}

/** Connects a queue pair of the client's provider with one of the server's. */
export async function connectedPair(
  fixture: StartedFixture,
  options: PairOptions = {},
): Promise<Pair> {
  const address = options.address ?? DEVICE.addresses[0];
  const sides: Omit<Side, 'connection'>[] = [];
  for (const provider of [fixture.server, fixture.client]) {
    const context = await provider.open(DEVICE.name);
    const pd = await context.allocPD();
    const { memory = 'allocated', memoryBytes = 65_536, access, region: registration } = options;
    const mr = await region(pd, memory, memoryBytes, access, registration);
    sides.push({ provider, context, pd, mr });
  }
  const [serverParts, clientParts] = sides;
  if (serverParts === undefined || clientParts === undefined) throw new Error('two sides');
  const listener = await listen(fixture.server, { host: address });
  try {
    const [serverConnection, clientConnection] = await Promise.all([
      acceptOne(listener, { pd: serverParts.pd, ...options.endpoint, ...options.serverEndpoint }),
      connect(fixture.client, {
        host: address,
        port: listener.address.port,
        pd: clientParts.pd,
        ...options.endpoint,
        ...options.clientEndpoint,
      }),
    ]);
    return {
      server: { ...serverParts, connection: serverConnection },
      client: { ...clientParts, connection: clientConnection },
      async [Symbol.asyncDispose]() {
        await Promise.all([serverConnection.close(), clientConnection.close()]);
        await Promise.all([serverParts.context.close(), clientParts.context.close()]);
      },
    };
  } finally {
    await listener.close();
  }
}

/** A connected pair that ends with the test. */
export async function pairOfTest(fixture: StartedFixture, options?: PairOptions): Promise<Pair> {
  const pair = await connectedPair(fixture, options);
  onTestFinished(() => pair[Symbol.asyncDispose]());
  return pair;
}

/** Accepts the next request. Throws when the listener closes. */
export async function acceptOne(
  listener: Awaited<ReturnType<typeof listen>>,
  options: EndpointOptions,
): Promise<Connection> {
  for await (const request of listener) return await request.accept(options);
  throw new Error('the listener closed');
}

/** Waits for `count` completions of a queue that has no other reader. */
export async function completions(cq: CQ, count = 1): Promise<WC[]> {
  const signal = patience();
  const taken: WC[] = [];
  while (taken.length < count) {
    taken.push(...(await cq.wait({ max: count - taken.length, signal })));
  }
  return taken;
}

/** Completions of a connection, by queue: its sends and its receives. */
export async function sendsAndReceives(
  connection: Connection,
  sends: number,
  receives: number,
): Promise<{ sends: WC[]; receives: WC[] }> {
  const all = await completions(connection.cq, sends + receives);
  return {
    sends: all.filter((wc) => wc.opcode < 128),
    receives: all.filter((wc) => wc.opcode >= 128),
  };
}

/** A signalled Send of the SGEs. */
export function send(sgList: readonly SGE[], wrId = 0): PlainSendWR {
  return { wrId, opcode: WROpcode.send, flags: SendFlag.signaled, sgList };
}

/** A signalled RDMA Write of the SGEs to `offset` in the peer's region. */
export function write(sgList: readonly SGE[], target: MR, offset = 0): WriteWR {
  return {
    opcode: WROpcode.rdmaWrite,
    flags: SendFlag.signaled,
    sgList,
    ...remote(target, offset),
  };
}

/** A signalled RDMA Read from `offset` in the peer's region into the SGEs. */
export function read(sgList: readonly SGE[], source: MR, offset = 0): ReadWR {
  return { opcode: WROpcode.rdmaRead, flags: SendFlag.signaled, sgList, ...remote(source, offset) };
}

/** Key and address of a byte in a region, for peers. */
export function remote(mr: MR, offset = 0): { remoteAddr: bigint; rkey: number } {
  return { remoteAddr: mr.address + BigInt(offset), rkey: mr.rkey };
}

/** True when both hold the same bytes; for long ones, whose diff would not help. */
export function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}

/** The fields of a successful completion. */
export const SUCCESS = { status: WCStatus.success } as const;

/** Names of `VerbsError` and of the classes derived from it. */
export const OWN_ERROR = /^(Verbs|Native|Operation|ConnectionRejected)Error$/;

/** Matches a `VerbsError` of this code and, for posts, this index of the first bad request. */
export function verbsError(code: ErrnoCode, badIndex?: number): unknown {
  return expect.objectContaining({
    name: expect.stringMatching(OWN_ERROR),
    code,
    ...(badIndex === undefined ? {} : { badIndex }),
  });
}

/** The address at which an id listens. */
export function boundTo(address: SocketAddress | undefined): SocketAddress {
  if (address === undefined) throw new Error('the id is not bound');
  return address;
}
