import type {
  CMEventRecord,
  CommandChannel,
  CommandName,
  CommandReply,
  CommandRequest,
  Commands,
  DeviceEvent,
  MappingRef,
} from '#contract/protocol/commands';
import { CQE_BYTES, cqBytes, rqBytes, sqBytes } from '#contract/protocol/queue-layout';
import { CMEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';

const DEVICE = {
  name: 'fake0',
  backend: 'emulated',
  nodeGuid: '0000000000000001',
  addresses: [],
} as const;

const UNBOUND = { device: undefined, localAddress: undefined, peerAddress: undefined };

type Answers = { [N in CommandName]?: (request: CommandRequest<N>) => CommandReply<N> };

/** A fake device: hands out handles and rings, records its calls, and acts as a test directs. */
export class FakeChannel implements CommandChannel {
  readonly kind = 'embedded';
  /** Commands in order of arrival. */
  readonly asked: CommandName[] = [];
  /** Their requests. */
  readonly requests: object[] = [];
  readonly doorbells: number[] = [];
  /** Commands that are refused, and how. */
  readonly refusals = new Map<CommandName, VerbsError>();
  /** Ring memory by token. */
  readonly rings = new Map<string, Uint8Array>();
  onEvent: (event: DeviceEvent) => void = () => {};
  onLost: (error: Error) => void = () => {};
  closed = false;
  /** The handle given out last. */
  lastHandle = 0;
  #lost = false;
  readonly #channels = new Map<number, (cq: number) => void>();

  readonly #answers: Answers = {
    listDevices: () => ({ devices: [DEVICE] }),
    openDevice: () => ({
      context: this.#handle(),
      device: DEVICE,
      unsupported: [],
      receivesNeedDoorbell: false,
    }),
    allocPD: () => ({ pd: this.#handle() }),
    allocBuffer: ({ lengthBytes }) => ({
      buffer: this.#handle(),
      mapping: this.#ring(lengthBytes),
    }),
    regMR: ({ lengthBytes }) => ({
      mr: this.#handle(),
      lkey: 0x100 + lengthBytes,
      rkey: 0x100 + lengthBytes,
      address: 0x1000n,
      tier: 'local',
      tierReason: 'paper',
    }),
    allocMW: () => ({ mw: this.#handle(), rkey: 0x1ff }),
    createCompChannel: () => ({ channel: this.#handle(), token: 'channel' }),
    createCQ: ({ cqe }) => ({ cq: this.#handle(), cqe, ring: this.#ring(cqBytes(cqe)) }),
    createSRQ: ({ maxWr }) => ({
      srq: this.#handle(),
      count: maxWr,
      ring: this.#ring(rqBytes(maxWr)),
    }),
    createQP: ({ capabilities, srq }) => ({
      qp: this.#handle(),
      qpNum: 77,
      capabilities,
      ring: this.#ring(sqBytes(capabilities.maxSendWr) + rqBytes(capabilities.maxRecvWr)),
      sqCount: capabilities.maxSendWr,
      rqOffset: sqBytes(capabilities.maxSendWr),
      rqCount: srq === undefined ? capabilities.maxRecvWr : 0,
    }),
    cmCreateId: () => ({ id: this.#handle() }),
    cmBindAddr: ({ address }) => ({ ...UNBOUND, device: 'fake0', localAddress: address }),
    cmResolveAddr: ({ id, destination }) => {
      const state = { ...UNBOUND, device: 'fake0', peerAddress: destination };
      this.emit(CMEventType.addrResolved, id, { state });
      return {};
    },
    cmResolveRoute: ({ id }) => {
      this.emit(CMEventType.routeResolved, id);
      return {};
    },
    cmListen: () => ({ ...UNBOUND, device: 'fake0' }),
  };

  request<N extends CommandName>(name: N, request: CommandRequest<N>): Promise<CommandReply<N>> {
    this.asked.push(name);
    this.requests.push(request);
    const refusal = this.refusals.get(name);
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.#lost) return new Promise(() => {});
    const answer: ((asked: Commands[N]['request']) => Commands[N]['reply']) | undefined =
      this.#answers[name];
    const reply = answer === undefined ? {} : answer(request);
    return Promise.resolve(reply as CommandReply<N>);
  }

  map(mapping: MappingRef): Promise<Uint8Array> {
    const ring = this.rings.get(mapping.token);
    return ring === undefined ? Promise.reject(new Error('no such ring')) : Promise.resolve(ring);
  }

  doorbell(qp: number): void {
    this.doorbells.push(qp);
  }

  addressOf(): bigint {
    return 0x1000n;
  }

  openEventPath(channel: number, _token: string, onEvent: (cq: number) => void) {
    this.#channels.set(channel, onEvent);
    return Promise.resolve({ fd: undefined, close: () => void this.#channels.delete(channel) });
  }

  close(): Promise<void> {
    this.closed = true;
    return Promise.resolve();
  }

  /** Fires the armed queue on every open channel. */
  fire(cq: number): void {
    for (const onEvent of this.#channels.values()) onEvent(cq);
  }

  /** Puts a completion at `index` of a queue's ring. */
  complete(ring: Uint8Array, index: number, wrId: number, status = 0): void {
    const view = new DataView(ring.buffer, ring.byteOffset + index * CQE_BYTES, CQE_BYTES);
    view.setBigUint64(0, BigInt(wrId), true);
    view.setUint8(9, 3);
    view.setUint16(10, status, true);
    view.setBigUint64(24, 77n, true);
    view.setUint8(8, 1);
  }

  emit(type: CMEventType, id: number, fields: Partial<CMEventRecord> = {}): void {
    const event: CMEventRecord = {
      type,
      id,
      listenId: undefined,
      error: undefined,
      privateData: new Uint8Array(0),
      initiatorDepth: undefined,
      responderResources: undefined,
      state: UNBOUND,
      text: 'paper',
      ...fields,
    };
    this.onEvent({ type: 'cm', event });
  }

  /** The device is gone: commands are never answered again. */
  lose(): void {
    this.#lost = true;
    this.onLost(new VerbsError('EIO', 'the paper burnt'));
  }

  #handle(): number {
    this.lastHandle += 1;
    return this.lastHandle;
  }

  #ring(lengthBytes: number): MappingRef {
    const token = `ring ${this.rings.size}`;
    this.rings.set(token, new Uint8Array(lengthBytes));
    return { token, lengthBytes };
  }
}
