/**
 * A native device under a test's control, served to a program in this process: the verbs API
 * above, the rings and the daemon's bridge between, and below it an object in place of rdma-core.
 */
import type {
  CommandChannel,
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
  MappingRef,
} from '#contract/protocol/commands';
import type { DeviceAttributes, SRQAttributes } from '#contract/verbs/attributes';
import type { WC } from '#contract/verbs/completion';
import { CMEventType, QPState, type WCOpcode, WCStatus } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { EmbeddedMemory } from '#daemon/embedded/embedded-memory';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { BridgedHost } from '#daemon/native/bridged-host';
import type {
  LowerAsyncEvent,
  LowerChannel,
  LowerCmEvent,
  LowerConnectionParameters,
  LowerCQ,
  LowerDevice,
  LowerEventChannel,
  LowerId,
  LowerMR,
  LowerPD,
  LowerQP,
  LowerQPInit,
  LowerSRQ,
} from '#daemon/native/lower';
import { DeviceProvider } from '#verbs-api/client/device-provider';

const ATTRIBUTES: DeviceAttributes = {
  fwVer: '1',
  nodeGuid: '0011223344556677',
  vendorId: 1,
  vendorPartId: 1,
  hwVer: 1,
  maxMrSize: 2 ** 40,
  maxQp: 16,
  maxQpWr: 1024,
  maxSge: 8,
  maxSgeRd: 4,
  maxInline: 128,
  maxCq: 16,
  maxCqe: 8192,
  maxMr: 16,
  maxMw: 16,
  maxPd: 16,
  maxQpRdAtom: 8,
  maxQpInitRdAtom: 8,
  maxSrq: 4,
  maxSrqWr: 64,
  maxSrqSge: 8,
  atomics: true,
  immediateData: false,
  physPortCnt: 1,
};

/** An object that may be closed more than once. */
class Given {
  disposed = 0;
  dispose(): void {
    this.disposed += 1;
  }
}

/** A completion queue; `completions` holds the device's completions. */
class FakeCQ extends Given implements LowerCQ {
  readonly cqe: number;
  readonly completions: WC[] = [];
  armed = 0;
  readonly #device: FakeDevice;

  constructor(device: FakeDevice, cqe: number) {
    super();
    this.#device = device;
    this.cqe = cqe;
  }

  poll(max: number): WC[] {
    this.#device.assertPresent();
    return this.completions.splice(0, max);
  }

  requestNotify(): void {
    this.#device.assertPresent();
    this.armed += 1;
  }
}

class FakeSRQ extends Given implements LowerSRQ {
  readonly maxWr: number;
  readonly receives: RecvWR[] = [];
  limit = 0;

  constructor(maxWr: number) {
    super();
    this.maxWr = maxWr;
  }

  postRecv(requests: readonly RecvWR[]): void {
    post(requests, this.receives, this.maxWr);
  }

  setLimit(srqLimit: number): void {
    this.limit = srqLimit;
  }

  query(): SRQAttributes {
    return { maxWr: this.maxWr, maxSge: 8, srqLimit: this.limit };
  }
}

/** A queue pair that keeps posted work until the test completes it. */
export class FakeQP extends Given implements LowerQP {
  readonly qpNum: number;
  readonly init: LowerQPInit;
  readonly sends: SendFields[] = [];
  readonly receives: RecvWR[] = [];
  readonly states: QPState[] = [];
  /** Sends that it accepts before ENOMEM. Default: the size it was created with. */
  sendRoom: number;
  /** Opcode that it refuses. */
  refused: number | undefined;
  /** Flushes its work on a move to ERR. */
  flushes = true;
  readonly #device: FakeDevice;

  constructor(device: FakeDevice, qpNum: number, init: LowerQPInit) {
    super();
    this.#device = device;
    this.qpNum = qpNum;
    this.init = init;
    this.sendRoom = init.maxSendWr;
  }

  postSend(requests: readonly SendFields[]): void {
    this.#device.assertPresent();
    const bad = requests.findIndex(({ opcode }) => opcode === this.refused);
    post(bad < 0 ? requests : requests.slice(0, bad), this.sends, this.sendRoom);
    if (bad >= 0) throw new VerbsError('EINVAL', 'refused', { badIndex: bad });
  }

  postRecv(requests: readonly RecvWR[]): void {
    this.#device.assertPresent();
    post(requests, this.receives, this.init.maxRecvWr);
  }

  modify(state: QPState): void {
    this.#device.assertPresent();
    this.states.push(state);
    if (state !== QPState.ERR || !this.flushes) return;
    while (this.sends.length > 0) this.completeSend(WCStatus.wrFlushErr);
    while (this.receives.length > 0) this.completeReceive(0, WCStatus.wrFlushErr);
  }

  query() {
    return {
      state: this.states.at(-1) ?? QPState.RESET,
      capabilities: { ...this.init },
      accessFlags: 0,
      maxRdAtomic: 0,
      maxDestRdAtomic: 0,
      sqSigAll: this.init.sqSigAll,
    };
  }

  completeSend(status: WCStatus = WCStatus.success): void {
    const wr = this.sends.shift();
    if (wr === undefined) throw new Error('nothing was sent');
    this.#complete(this.init.sendCQ, wr.wrId, status, 0, 0);
  }

  /** The oldest receive completes, of the queue pair or its shared queue. */
  completeReceive(byteLen: number, status: WCStatus = WCStatus.success): void {
    const { srq } = this.init;
    const queue = srq instanceof FakeSRQ ? srq.receives : this.receives;
    const wr = queue.shift();
    if (wr === undefined) throw new Error('no receive');
    this.#complete(this.init.recvCQ, wr.wrId, status, 128, byteLen);
  }

  #complete(
    cq: LowerCQ,
    wrId: number | bigint | undefined,
    status: WCStatus,
    opcode: number,
    byteLen: number,
  ): void {
    if (!(cq instanceof FakeCQ)) throw new Error('a foreign queue');
    cq.completions.push({
      wrId: BigInt(wrId ?? 0),
      status,
      opcode: opcode as WCOpcode,
      byteLen,
      qpNum: this.qpNum,
      wcFlags: 0,
      immData: 0n,
      invalidatedRkey: 0,
      srcQp: 0,
    });
    this.#device.channel.fired.push(cq);
  }
}

/** Takes requests up to `room` in all; they are copied, as a device does. */
function post<T extends SendFields | RecvWR>(
  requests: readonly T[],
  queue: T[],
  room: number,
): void {
  const taken = Math.max(0, Math.min(requests.length, room - queue.length));
  for (const request of requests.slice(0, taken)) queue.push(copyOf(request));
  if (taken < requests.length) throw new VerbsError('ENOMEM', 'full', { badIndex: taken });
}

function copyOf<T extends SendFields | RecvWR>(request: T): T {
  const sgList = (request.sgList ?? []).map(({ addr, length, lkey }) => ({ addr, length, lkey }));
  const inline = 'inlineData' in request ? { inlineData: request.inlineData?.slice() } : {};
  return { ...request, ...inline, sgList };
}

class FakeChannel extends Given implements LowerChannel {
  readonly descriptor = 100;
  readonly fired: FakeCQ[] = [];
  readEvent(): LowerCQ | undefined {
    return this.fired.shift();
  }
}

class FakePD extends Given implements LowerPD {
  readonly #device: FakeDevice;

  constructor(device: FakeDevice) {
    super();
    this.#device = device;
  }

  regMR(buffer: Uint8Array, access: number, iova?: bigint): LowerMR {
    this.#device.registered.push({ lengthBytes: buffer.length, access, iova });
    return Object.assign(new Given(), { address: 0, lkey: 0x11, rkey: 0x22 });
  }

  createSRQ({ maxWr }: { maxWr: number }): LowerSRQ {
    const srq = new FakeSRQ(maxWr);
    this.#device.srqs.push(srq);
    return srq;
  }

  createQP(init: LowerQPInit): LowerQP {
    const qp = new FakeQP(this.#device, 7 + this.#device.qps.length, init);
    this.#device.qps.push(qp);
    return qp;
  }
}

class FakeDevice extends Given implements LowerDevice {
  readonly info = { name: 'fake0', nodeGuid: ATTRIBUTES.nodeGuid };
  readonly traits = {
    iova: false,
    zeroBased: false,
    localInvalidate: true,
    maxPrivateData: 16,
    maxInline: 128,
    needsElement: true,
    flushesLatePosts: false,
    swapsDepths: false,
    resets: false,
    firstQueueEntries: 0,
  };
  readonly attributes = ATTRIBUTES;
  readonly asyncDescriptor = 101;
  readonly channel = new FakeChannel();
  readonly cqs: FakeCQ[] = [];
  readonly qps: FakeQP[] = [];
  readonly srqs: FakeSRQ[] = [];
  readonly registered: { lengthBytes: number; access: number; iova: bigint | undefined }[] = [];
  readonly events: LowerAsyncEvent[] = [];
  /** The device was removed. */
  gone = false;

  assertPresent(): void {
    if (this.gone) throw new VerbsError('EIO', 'fake0 is gone');
  }

  queryPort() {
    return {
      state: 'active',
      maxMtuBytes: 4096,
      activeMtuBytes: 1024,
      maxMessageBytes: 2 ** 31 - 1,
      gid: '',
      linkLayer: 'Ethernet',
    } as const;
  }

  allocPD(): LowerPD {
    this.assertPresent();
    return new FakePD(this);
  }

  createCompChannel(): LowerChannel {
    return this.channel;
  }

  createCQ(cqe: number): LowerCQ {
    const cq = new FakeCQ(this, cqe);
    this.cqs.push(cq);
    return cq;
  }

  readAsyncEvent(): LowerAsyncEvent | undefined {
    this.assertPresent();
    return this.events.shift();
  }
}

/** A connection id that records its calls. */
export class FakeId implements LowerId {
  deviceName: string | undefined;
  localAddress: SocketAddress | undefined;
  peerAddress: SocketAddress | undefined;
  readonly asked: string[] = [];
  parameters: LowerConnectionParameters | undefined;
  readonly #onDisconnect: (id: FakeId) => void;

  constructor(onDisconnect: (id: FakeId) => void) {
    this.#onDisconnect = onDisconnect;
  }

  bindAddr(address: SocketAddress): void {
    this.asked.push('bindAddr');
    this.deviceName = 'fake0';
    this.localAddress = { ...address, port: address.port === 0 ? 5000 : address.port };
  }

  resolveAddr(destination: SocketAddress): void {
    this.asked.push('resolveAddr');
    this.peerAddress = destination;
  }

  resolveRoute(): void {
    this.asked.push('resolveRoute');
  }

  listen(): void {
    this.asked.push('listen');
  }

  initialise(): void {
    this.asked.push('initialise');
  }

  connect(parameters: LowerConnectionParameters): void {
    this.asked.push('connect');
    this.parameters = parameters;
  }

  accept(parameters: LowerConnectionParameters): void {
    this.asked.push('accept');
    this.parameters = parameters;
  }

  reject(): void {
    this.asked.push('reject');
  }

  disconnect(): void {
    this.asked.push('disconnect');
    this.#onDisconnect(this);
  }

  async disposeAsync(): Promise<void> {
    this.asked.push('dispose');
  }
}

class FakeEventChannel extends Given implements LowerEventChannel {
  readonly descriptor = 102;
  readonly ids: FakeId[] = [];
  readonly events: LowerCmEvent[] = [];
  /** Reports input. */
  onReadable: () => void = () => undefined;

  createId(): LowerId {
    const id = new FakeId((ended) => this.raise(ended, CMEventType.disconnected));
    this.ids.push(id);
    return id;
  }

  raise(id: LowerId, type: number, more: Partial<LowerCmEvent> = {}): void {
    this.events.push({
      type,
      id,
      listenId: undefined,
      status: 0,
      privateData: new Uint8Array(0),
      initiatorDepth: 0,
      responderResources: 0,
      ...more,
    });
    setImmediate(() => this.onReadable());
  }

  readEvent(): LowerCmEvent | undefined {
    return this.events.shift();
  }

  async settled(): Promise<void> {}
}

/** A program's access to the devices, without a daemon between. */
class RigChannel implements CommandChannel {
  readonly kind = 'daemon';
  onEvent: (event: DeviceEvent) => void = () => undefined;
  onLost: (error: Error) => void = () => undefined;
  readonly client: ClientContext;
  readonly memory = new EmbeddedMemory();
  readonly #channels = new Map<Handle, (cq: Handle) => void>();

  constructor(directory: DeviceDirectory) {
    this.client = new ClientContext({
      directory,
      memory: this.memory,
      sendEvent: (event) => queueMicrotask(() => this.onEvent(event)),
      sendCompletion: (channel, cq) => queueMicrotask(() => this.#channels.get(channel)?.(cq)),
      label: 'rig',
    });
  }

  async request<N extends CommandName>(
    name: N,
    request: CommandRequest<N>,
  ): Promise<CommandReply<N>> {
    return await this.client.execute(name, request);
  }

  async map(mapping: MappingRef): Promise<Uint8Array> {
    return this.memory.view(mapping);
  }

  doorbell(queue: Handle): void {
    this.client.doorbell(queue);
  }

  addressOf(buffer: Uint8Array): bigint {
    return this.memory.announce(buffer);
  }

  async openEventPath(channel: Handle, _token: string, onEvent: (cq: Handle) => void) {
    this.#channels.set(channel, onEvent);
    return { fd: undefined, close: () => void this.#channels.delete(channel) };
  }

  async close(): Promise<void> {
    this.client.close();
  }
}

export class NativeRig {
  readonly device = new FakeDevice();
  readonly channel = new FakeEventChannel();
  readonly notes: string[] = [];
  readonly host: RnicHost;
  readonly native: BridgedHost;
  readonly directory: DeviceDirectory;
  readonly commandChannel: RigChannel;
  readonly provider: DeviceProvider;
  readonly #readable = new Map<number, () => void>();

  /** `node`: see `BridgedDeviceInit`. */
  constructor(node = '/nonexistent') {
    this.host = new RnicHost({
      system: hostSystem(),
      devices: [{ name: 'emu0', addresses: ['127.0.0.1'] }],
    });
    this.native = new BridgedHost({
      devices: [{ name: 'nat0', addresses: ['127.0.0.2'], node, lower: this.device }],
      channel: this.channel,
      watch: (descriptor, onReadable) => {
        this.#readable.set(descriptor, onReadable);
        return { close: () => this.#readable.delete(descriptor), hold: () => undefined };
      },
      note: (_level, _device, text) => this.notes.push(text),
    });
    this.channel.onReadable = () => this.#readable.get(this.channel.descriptor)?.();
    this.directory = new DeviceDirectory(this.host, this.native);
    this.commandChannel = new RigChannel(this.directory);
    this.provider = new DeviceProvider(this.commandChannel);
  }

  /** Makes the host read from the device: completions, events, and connection events. */
  async turn(): Promise<void> {
    for (const onReadable of [...this.#readable.values()]) onReadable();
    await new Promise((resolve) => setImmediate(resolve));
  }

  async cmEvent(id: LowerId, type: number, more: Partial<LowerCmEvent> = {}): Promise<void> {
    this.channel.raise(id, type, more);
    await this.turn();
  }

  async close(): Promise<void> {
    await this.provider.close();
    await this.native.close();
    await this.host.close();
  }
}
