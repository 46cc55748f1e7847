/**
 * A host with one or several emulated devices inside the test, used through its own interface: no
 * daemon, no client library. Events of connection ids and completions are awaited.
 */
import type { CMParameters } from '#contract/protocol/commands';
import type { WC } from '#contract/verbs/completion';
import { Access, CMEventType, WROpcode } from '#contract/verbs/enums';
import type { SocketAddress } from '#contract/verbs/provider';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import { hostSystem } from '#daemon/host/links/system';
import type { HostAsyncEvent } from '#daemon/host/nic-effects';
import type { HostNotice } from '#daemon/host/observer';
import { RnicHost, type RnicHostOptions } from '#daemon/host/rnic-host';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import { CompletionRing } from '#verbs-api/client/completion-ring';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { SendRing } from '#verbs-api/client/send-ring';
import { until } from './patience.ts';
import { queueSizes } from './queue-sizes.ts';

const QUEUE_DEPTH = 64;
const BUFFER_BYTES = 1 << 20;
/** Local address of every test region's first byte. */
const BUFFER_ADDRESS = 0x10_0000;

/** Parameters of connect and accept that leave all choices to the device. */
export const NO_WISHES: CMParameters = {
  privateData: new Uint8Array(0),
  initiatorDepth: undefined,
  responderResources: undefined,
  wire: undefined,
};

/** A QP with its own queues, CQ and registered buffer. */
export class Channel {
  readonly qp: QP;
  readonly cq: CQ;
  readonly buffer: Uint8Array;
  readonly mr: MR;
  readonly #node: RnicNode;
  readonly #send: SendRing;
  readonly #receive: ReceiveRing;
  readonly #completions: CompletionRing;

  constructor(node: RnicNode, device: EmulatedDevice, pd: PD, bufferBytes = BUFFER_BYTES) {
    this.#node = node;
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    this.buffer = new Uint8Array(bufferBytes);
    this.mr = device.nic.regMR(pd, {
      backing: new ViewBacking(this.buffer),
      backingOffset: 0,
      lengthBytes: bufferBytes,
      address: BUFFER_ADDRESS,
      iova: BUFFER_ADDRESS,
      access: Access.localWrite | Access.remoteWrite | Access.remoteRead,
      key: undefined,
    });
    this.cq = device.nic.createCQ({ cqe: 4 * QUEUE_DEPTH, ring, tag: this });
    const capabilities = queueSizes(QUEUE_DEPTH, QUEUE_DEPTH, 2, 64);
    const queues = { sendCQ: this.cq, recvCQ: this.cq, srq: undefined };
    this.qp = device.nic.createQP(pd, { ...queues, capabilities, sqSigAll: true, ring, tag: this });
    const { qp } = this;
    this.#send = new SendRing(qp.ring, {
      count: qp.sqCount,
      maxSge: 2,
      maxInline: 64,
      sqSigAll: true,
    });
    this.#receive = new ReceiveRing(qp.ring, qp.rqOffset, qp.rqCount, 2);
    this.#completions = new CompletionRing(this.cq.ring, this.cq.count);
  }

  /** Address of `buffer[offset]` as the device and peers know it. */
  address(offset = 0): number {
    return BUFFER_ADDRESS + offset;
  }

  postSend(wr: SendFields): void {
    this.enqueueSend(wr);
    this.#node.host.doorbell(this.qp);
  }

  /** Writes a request into the ring without ringing the doorbell. */
  enqueueSend(wr: SendFields): void {
    const refused = this.#send.post(wr);
    if (refused !== undefined) throw new Error(refused);
  }

  /** Sends `length` bytes of the buffer from `offset` on. */
  send(offset: number, length: number): void {
    const sgList = [{ addr: this.address(offset), length, lkey: this.mr.lkey }];
    this.postSend({ opcode: WROpcode.send, sgList });
  }

  /** Posts a receive into the buffer. */
  receive(offset: number, length: number): void {
    this.postReceive([{ addr: this.address(offset), length, lkey: this.mr.lkey }]);
  }

  postReceive(sgList: NonNullable<RecvWR['sgList']>): void {
    const wr: RecvWR = { sgList };
    const refused = this.#receive.post(wr);
    if (refused !== undefined) throw new Error(refused);
  }

  /** Asks for one `onCompletion` of the host at the next completion. */
  arm(): void {
    this.#completions.arm(false);
  }

  /** Takes all available completions. */
  poll(): WC[] {
    const found: WC[] = [];
    for (;;) {
      const wc = this.#completions.take();
      if (wc === undefined) return found;
      found.push(wc);
    }
  }

  async completions(count: number): Promise<WC[]> {
    const found: WC[] = [];
    await until(`${count} completions`, () => {
      found.push(...this.poll());
      return found.length >= count;
    });
    return found;
  }
}

/** A host and its reported events. */
export class RnicNode {
  readonly host: RnicHost;
  readonly notices: HostNotice[] = [];
  readonly asyncEvents: HostAsyncEvent[] = [];
  /** Events by id; those of a listener are its connect requests. */
  readonly #events = new Map<HostId, HostCmEvent[]>();

  constructor(options: Partial<RnicHostOptions> = {}) {
    this.host = new RnicHost({
      system: hostSystem(),
      ...options,
      observer: { ...options.observer, notice: (notice) => this.notices.push(notice) },
    });
    this.host.onAsync = (_device, event) => this.asyncEvents.push(event);
    this.host.onCmEvent = (id, event) => {
      const at = event.type === CMEventType.connectRequest ? (event.listener ?? id) : id;
      this.eventsOf(at).push(event);
    };
  }

  /** Events of an id that were not awaited yet. */
  eventsOf(id: HostId): HostCmEvent[] {
    const events = this.#events.get(id) ?? [];
    this.#events.set(id, events);
    return events;
  }

  async event(id: HostId): Promise<HostCmEvent> {
    const events = this.eventsOf(id);
    await until(`an event of id ${id.number}`, () => events.length > 0);
    const event = events.shift();
    if (event === undefined) throw new Error('no event');
    return event;
  }

  device(name?: string): EmulatedDevice {
    const found = this.host.devices.find((device) => name === undefined || device.name === name);
    if (found === undefined) throw new Error(`no device ${name}`);
    return found;
  }

  channel(name?: string, bufferBytes?: number): Channel {
    const device = this.device(name);
    return new Channel(this, device, device.nic.allocPD(), bufferBytes);
  }

  listen(address = '127.0.0.1', backlog = 16): { id: HostId; at: SocketAddress } {
    const id = this.host.cm.createId(undefined);
    this.host.cm.bindAddr(id, { address, port: 0 });
    this.host.cm.listen(id, backlog);
    return { id, at: { address, port: id.localAddress?.port ?? 0 } };
  }

  /** An id that has resolved `destination`, with its events consumed. */
  async resolved(destination: SocketAddress, source?: SocketAddress): Promise<HostId> {
    const id = this.host.cm.createId(undefined);
    this.host.cm.resolveAddr(id, destination, source);
    this.host.cm.resolveRoute(id);
    await this.event(id);
    await this.event(id);
    return id;
  }

  /** Starts to connect a channel to `destination`. */
  async connect(
    channel: Channel,
    destination: SocketAddress,
    wishes: Partial<CMParameters> = {},
    source?: SocketAddress,
  ): Promise<HostId> {
    const id = await this.resolved(destination, source);
    this.host.cm.connect(id, channel.qp, { ...NO_WISHES, ...wishes });
    return id;
  }
}

/** Two channels connected over loopback, and their ids. */
export interface ConnectedPair {
  readonly active: Channel;
  readonly activeId: HostId;
  readonly passive: Channel;
  readonly passiveId: HostId;
}

/** Connects a new channel of `from` to a new one of `to`, through a listener that stays open. */
export async function connectPair(
  from: RnicNode,
  to: RnicNode,
  address = '127.0.0.1',
  wishes: Partial<CMParameters> = {},
): Promise<ConnectedPair> {
  const listener = to.listen(address);
  const active = from.channel();
  const passive = to.channel();
  const activeId = await from.connect(active, listener.at, wishes);
  const request = await to.event(listener.id);
  to.host.cm.accept(request.id, passive.qp, NO_WISHES);
  const [mine, theirs] = await Promise.all([from.event(activeId), to.event(request.id)]);
  for (const event of [mine, theirs]) {
    if (event.type !== CMEventType.established) throw new Error(`not established: ${event.text}`);
  }
  return { active, activeId, passive, passiveId: request.id };
}
