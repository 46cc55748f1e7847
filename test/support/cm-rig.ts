/** A connection manager whose network, streams and queue pairs only record their calls. */
import { NEVER } from '#base/time';
import type { CMParameters } from '#contract/protocol/commands';
import { type ErrnoCode, VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { CmEffect, CmEvent, HostNetwork } from '#daemon/iwarp/cm/cm-host';
import type { CmEndpoint, CmId } from '#daemon/iwarp/cm/cm-id';
import type {
  CmDevice,
  CmLimits,
  CmStream,
  ConnectableQP,
  SocketFacts,
} from '#daemon/iwarp/cm/cm-types';
import { ConnectionManager } from '#daemon/iwarp/cm/connection-manager';
import type { StreamEvent, StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { ModelUser } from './model-user.ts';

export const NO_WISHES: CMParameters = {
  privateData: new Uint8Array(0),
  initiatorDepth: undefined,
  responderResources: undefined,
  wire: undefined,
};
export const PEER: SocketAddress = { address: '10.0.0.9', port: 4791 };
export const ESTABLISHED: StreamEvent = {
  type: 'established',
  privateData: Uint8Array.of(7),
  peerIrd: 4,
  peerOrd: 5,
  ird: 3,
  ord: 2,
  crcEnabled: true,
  sendMarkers: false,
  receiveMarkers: false,
  revision: 2,
};
export const REQUEST: Extract<StreamEvent, { type: 'request' }> = {
  type: 'request',
  revision: 2,
  enhanced: true,
  privateData: Uint8Array.of(1, 2),
  peerIrd: 4,
  peerOrd: 5,
  peerToPeer: false,
};
export const CLOSED: StreamEvent = { type: 'closed', failure: undefined };
export const lost: StreamEvent = { type: 'closed', failure: { kind: 'lost', text: 'gone' } };

/** Records the commands it gets. */
class FakeStream implements CmStream {
  readonly heldInput = new Uint8Array(0);
  readonly receivedFpdus = 0;
  readonly options: StreamOptions;
  readonly commands: string[] = [];
  readonly sendable = true;
  readonly midSend = false;

  constructor(options: StreamOptions) {
    this.options = options;
  }

  connect(privateData: Uint8Array): void {
    this.commands.push(`connect ${privateData.length}`);
  }
  listen(): void {
    this.commands.push('listen');
  }
  accept(privateData: Uint8Array, _user: unknown, wishes: { ird: number; ord: number }): void {
    this.commands.push(`accept ${privateData.length} ird ${wishes.ird} ord ${wishes.ord}`);
  }
  reject(privateData: Uint8Array): void {
    this.commands.push(`reject ${privateData.length}`);
  }
  leaveUnsealed(): void {}
  seal(): void {}
  refuse(): void {
    this.commands.push('refuse');
  }
  pump(): void {}
  disconnect(): void {
    this.commands.push('disconnect');
  }
  abort(): void {
    this.commands.push('abort');
  }
  fail(): void {}
  setEmss(): void {}
  handleBytes(): void {}
  handleFlushed(): void {}
  handleAcknowledged(): void {}
  handlePeerClosed(): void {}
  handleClosed(): void {}
  handleDeadline(): void {}
  nextDeadline(): number {
    return Number.POSITIVE_INFINITY;
  }
  pollTransmit(): undefined {}
  pollEvent(): undefined {}
}

/** Records the reports of its connection. */
export class FakeQP extends ModelUser implements ConnectableQP {
  readonly qpn = 1;
  readonly notified: string[] = [];
  wire: ConnectableQP['wire'];
  /** Reports wait while something is copied into its program's memory. */
  copying = false;
  readonly waiting: (() => void)[] = [];
  /** When set, `attach` refuses with it. */
  refusal: ErrnoCode | undefined;

  attach(stream: NonNullable<ConnectableQP['wire']>): void {
    if (this.refusal !== undefined) throw new VerbsError(this.refusal);
    this.wire = stream;
    this.notified.push('attach');
  }
  detach(): void {
    this.wire = undefined;
    this.notified.push('detach');
  }
  established(depths: { ird: number; ord: number }): void {
    this.notified.push(`established ird ${depths.ird} ord ${depths.ord}`);
  }
  disconnecting(): void {
    this.notified.push('disconnecting');
  }
  afterCopies(report: () => void): void {
    if (this.copying) this.waiting.push(report);
    else report();
  }

  wireEnded(failure: { kind: string } | undefined): void {
    this.wire = undefined;
    this.notified.push(`ended ${failure?.kind ?? 'gracefully'}`);
  }
  terminated(by: 'us' | 'peer'): void {
    this.notified.push(`terminated by ${by}`);
  }
}

/** Addresses of the host, and the uses of its ports. */
class FakeNetwork implements HostNetwork {
  readonly ports = new Map<CmId, string>();
  readonly listening = new Set<CmId>();
  /** Destination to source address; others are unreachable. */
  routes: Record<string, string> = { '10.0.0.9': '10.0.0.1', '127.0.0.1': '127.0.0.1' };
  refusal: ErrnoCode | undefined;
  #nextPort = 32_768;

  reserve(id: CmId, { address, port }: SocketAddress): { port: number } | { error: ErrnoCode } {
    if (this.refusal !== undefined) return { error: this.refusal };
    const given = port === 0 ? this.#nextPort++ : port;
    this.ports.set(id, `${address} ${given}`);
    return { port: given };
  }
  clash(): undefined {
    return undefined;
  }
  isTaken(): boolean {
    return false;
  }
  listen(id: CmId): ErrnoCode | undefined {
    if (this.refusal !== undefined) return this.refusal;
    this.listening.add(id);
    return undefined;
  }
  release(id: CmId): void {
    this.ports.delete(id);
    this.listening.delete(id);
  }
  suspend(id: CmId): boolean {
    return this.listening.delete(id);
  }
  handOver(from: CmId, to: CmId): void {
    this.ports.set(to, this.ports.get(from) ?? '');
    this.ports.delete(from);
  }
  sourceAddress(
    destination: string,
    source: string | undefined,
  ): { address: string } | { error: ErrnoCode } {
    const address = source ?? this.routes[destination];
    return address === undefined ? { error: 'ENETUNREACH' } : { address };
  }
}

/** A device with small limits. */
export function device(name = 'iwarp0', addresses: readonly string[] = []): CmDevice {
  return {
    name,
    addresses,
    irdMax: 16,
    ordMax: 8,
    lowerLayer: 'tcp',
    wire: {
      mpaRevision: 2,
      enhancedSupported: true,
      crcRequested: true,
      markersRequested: false,
      peerToPeer: true,
      rtrKinds: { send: false, write: true, read: true },
      fpduSize: { kind: 'emss' },
      segmentAligned: true,
      startupTimeoutMicros: 5_000_000,
      closeTimeoutMicros: 1_000_000,
      nudgeDelayMicros: NEVER,
      keepaliveIdleMicros: 0,
      keepaliveIntervalMicros: 1_000_000,
      keepaliveProbes: 1,
    },
  };
}

/** A manager and everything around it. */
export class CmRig {
  readonly network = new FakeNetwork();
  readonly streams: FakeStream[] = [];
  readonly manager: ConnectionManager;
  /** Reported events, in order. */
  readonly events: CmEvent[] = [];
  /** Effects other than events. */
  readonly effects: Exclude<CmEffect, { type: 'deliver' }>[] = [];
  now = 1000;

  constructor(devices: readonly CmDevice[] = [device()], limits: Partial<CmLimits> = {}) {
    this.manager = new ConnectionManager({
      devices: () => devices,
      network: this.network,
      createStream: (_device, options) => {
        const stream = new FakeStream(options);
        this.streams.push(stream);
        return stream;
      },
      limits,
    });
  }

  /** Takes all effects, and returns the events among them as type numbers. */
  drain(): number[] {
    const types: number[] = [];
    for (;;) {
      const effect = this.manager.pollEffect();
      if (effect === undefined) return types;
      if (effect.type !== 'deliver') this.effects.push(effect);
      else {
        this.events.push(effect.event);
        types.push(effect.event.type);
      }
    }
  }

  get lastEvent(): CmEvent {
    const event = this.events.at(-1);
    if (event === undefined) throw new Error('no event was reported');
    return event;
  }

  get stream(): FakeStream {
    const stream = this.streams.at(-1);
    if (stream === undefined) throw new Error('no stream was made');
    return stream;
  }

  /** An id that may connect. */
  resolved(): CmId {
    const id = this.manager.createId('me');
    this.manager.resolveAddr(id, PEER, undefined);
    this.manager.resolveRoute(id);
    this.drain();
    return id;
  }

  /** An id whose connect was just called. */
  dialing(qp = new FakeQP(), change: Partial<CMParameters> = {}): Connecting {
    const id = this.resolved();
    this.manager.connect(id, qp, { ...NO_WISHES, ...change }, this.now);
    this.drain();
    const effect = this.effects.at(-1);
    if (effect?.type !== 'dial') throw new Error('no dial');
    return { id, qp, endpoint: effect.endpoint };
  }

  /** An id with TCP connected and its Request sent. */
  initiating(qp = new FakeQP(), change: Partial<CMParameters> = {}): Connecting {
    const connecting = this.dialing(qp, change);
    this.manager.handleDialed(connecting.endpoint, this.facts(), this.now);
    this.drain();
    return connecting;
  }

  listening(backlog = 4): CmId {
    const id = this.manager.createId('server');
    this.manager.bindAddr(id, { address: '10.0.0.1', port: 4791 });
    this.manager.listen(id, backlog);
    return id;
  }

  /** A connection accepted by `listener` that has sent nothing yet. */
  incoming(listener: CmId): CmEndpoint {
    const endpoint = this.manager.handleIncoming(listener, this.facts(), this.now);
    if (typeof endpoint === 'string') throw new Error(endpoint);
    return endpoint;
  }

  /** A connection whose Request was delivered to the consumer. */
  requested(listener = this.listening()): { readonly id: CmId; readonly endpoint: CmEndpoint } {
    const endpoint = this.incoming(listener);
    this.emit(endpoint, REQUEST);
    return { id: this.lastEvent.id, endpoint };
  }

  /** The endpoint's stream reports something; returns the resulting events as type numbers. */
  emit(endpoint: CmEndpoint, event: StreamEvent): number[] {
    endpoint.handleStreamEvent(event, this.now);
    return this.drain();
  }

  facts(): SocketFacts {
    const local = { address: '10.0.0.1', port: 4791 };
    return { local, remote: PEER, emssBytes: 1448, lowerLayer: 'tcp' };
  }
}

interface Connecting {
  readonly id: CmId;
  readonly qp: FakeQP;
  readonly endpoint: CmEndpoint;
}
