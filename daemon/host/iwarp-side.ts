/** The iWARP side of a host: connection manager, ports, and the conduits of its connections. */
import type { Micros } from '#base/time';
import type { Fault } from '../faults/fault.ts';
import type { CmEffect, CmEvent } from '../iwarp/cm/cm-host.ts';
import type { CmId } from '../iwarp/cm/cm-id.ts';
import type { CmDevice, CmLimits, SocketFacts } from '../iwarp/cm/cm-types.ts';
import { ConnectionManager } from '../iwarp/cm/connection-manager.ts';
import { Stream } from '../iwarp/engine/stream.ts';
import type { FrameReader } from '../iwarp/faults/frame.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { Conduit } from './conduit.ts';
import { Conduits, type ConduitsHost } from './conduits.ts';
import type { ConnectionChoice, ConnectionStatus } from './connection-status.ts';
import type { EventLoop } from './event-loop.ts';
import type { HostFaults } from './host-faults.ts';
import { IdNetwork, type NetworkUser } from './host-network.ts';
import type { HostSide, SideHost } from './host-side.ts';
import type { Link } from './links/link.ts';
import type { HostNotice, HostObserver } from './observer.ts';
import { inSlices } from './slices.ts';
import type { Associations, StreamCarrier } from './stream-carrier.ts';
import { TurnShares } from './turn-share.ts';

/** Turns of the event loop that a reset waits for sockets to close; a reset socket takes one. */
const RESET_TURNS_MAX = 100;
/** Ids and connections ended in one turn of a reset, or of closing the host. */
export const ENDS_PER_TURN = 64;

/** The iWARP side's interface to its host. */
export interface IwarpSideHost extends SideHost {
  readonly faults: HostFaults;
  /** The connection manager reports an event. */
  handleCmEvent(event: CmEvent): void;
}

interface IwarpSideOptions {
  readonly loop: EventLoop;
  readonly observer: HostObserver;
  /** By lower layer; the last one's network has the ports of all. */
  readonly carriers: readonly StreamCarrier[];
  readonly limits: Partial<CmLimits> | undefined;
  readonly turnShareBytes: number | undefined;
}

export class IwarpSide implements HostSide, ConduitsHost, NetworkUser {
  readonly manager: ConnectionManager;
  readonly conduits: Conduits;
  readonly network: IdNetwork;
  readonly #host: IwarpSideHost;
  readonly #loop: EventLoop;
  readonly #carriers: readonly StreamCarrier[];
  readonly #associations: readonly Associations[];
  #onLastGone: () => void = () => {};

  constructor(host: IwarpSideHost, options: IwarpSideOptions) {
    const { loop, observer, carriers, limits, turnShareBytes } = options;
    this.#host = host;
    this.#loop = loop;
    this.#carriers = carriers;
    this.#associations = carriers.flatMap(({ associations }) => associations ?? []);
    const { network } = carriers.at(-1) as StreamCarrier;
    this.network = new IdNetwork(network, this, host.isolated);
    const devices = host.devices
      .filter(({ transport }) => transport === 'iwarp')
      .map(({ cmDevice }) => cmDevice);
    this.manager = new ConnectionManager({
      devices: () => devices,
      network: this.network,
      createStream: (device, streamOptions) => {
        return new Stream(streamOptions, this.#carrierOf(device).makeLayer(device, streamOptions));
      },
      ...(limits === undefined ? {} : { limits }),
    });
    const shares = new TurnShares((run) => host.clock.soon(run), turnShareBytes);
    this.conduits = new Conduits(this, this.manager, this.network, loop, observer, shares);
  }

  #carrierOf({ lowerLayer }: Pick<CmDevice, 'lowerLayer'>): StreamCarrier {
    const carrier = this.#carriers.find((each) => each.lowerLayer === lowerLayer);
    if (carrier === undefined) throw new Error(`no carrier for ${lowerLayer}`);
    return carrier;
  }

  // Calls of the host

  drainEffects(now: Micros): boolean {
    let any = false;
    for (;;) {
      const effect = this.manager.pollEffect();
      if (effect === undefined) return any;
      any = true;
      this.#act(effect, now);
    }
  }

  handleDeadline(now: Micros): void {
    this.manager.handleDeadline(now);
  }

  nextDeadline(): Micros {
    return this.manager.nextDeadline();
  }

  handleOutput(qp: QP): void {
    this.conduits.enqueue(qp);
  }

  handleDisconnect(qp: QP): void {
    this.conduits.enqueue(qp);
  }

  handleStopped(qp: QP): void {
    this.conduits.enqueue(qp);
  }

  handleEvent(): void {}

  setPacketFaults(faults: readonly Fault[] | undefined): void {
    for (const associations of this.#associations) associations.setFaults(faults);
  }

  *connections(wants: ConnectionChoice): Iterable<ConnectionStatus> {
    for (const { device, local, remote, role, phase, qp } of this.manager.endpoints()) {
      if (!wants(device.name, qp?.qpn)) continue;
      yield { device: device.name, local, remote, role, phase, qpNum: qp?.qpn };
    }
  }

  /** Finds frames in the output of a connection, for faults. */
  makeFrameReader(conduit: Conduit): FrameReader {
    return this.#carrierOf(conduit.endpoint.device).makeFrameReader(conduit);
  }

  get associationCount(): number {
    return this.#associations.reduce((sum, { associationCount }) => sum + associationCount, 0);
  }

  assertDeepInvariants(): void {
    this.manager.assertDeepInvariants();
    this.network.assertDeepInvariants((id) => this.manager.mayHoldPort(id));
    this.conduits.assertDeepInvariants();
  }

  // Closing

  /**
   * Releases the ports held for future listeners of `keeper`, by default all, in later turns if there are
   * many. Undefined if all are released.
   */
  releasePorts(keeper?: object): Promise<void> | undefined {
    const releasing = this.#inSlices(this.manager.portsKeptFor(keeper), (id) => {
      this.manager.releasePort(id);
    });
    if (keeper !== undefined) for (const each of this.#associations) each.forget(keeper);
    return releasing;
  }

  /** Destroys every id. Undefined if all were destroyed at once. */
  destroyIds(): Promise<void> | undefined {
    return this.#inSlices(this.manager.ids(), (id) => this.manager.destroy(id, this.now()));
  }

  /** Resets every connection; resolves when their sockets are closed. */
  async resetConnections(): Promise<void> {
    const { conduits } = this;
    const ended = [...conduits.all()];
    await this.#inSlices(ended, (conduit) => {
      if (conduits.has(conduit.stream)) conduit.reset();
    });
    for (let turn = 0; turn < RESET_TURNS_MAX; turn += 1) {
      if (!ended.some(({ stream }) => conduits.has(stream))) break;
      await new Promise<void>((resolve) => this.#host.clock.soon(resolve));
    }
  }

  /** Ends every connection. Undefined if all were ended in this turn. */
  endConnections(): Promise<void> | undefined {
    const { conduits } = this;
    return this.#inSlices([...conduits.all()], (conduit) => {
      if (conduits.has(conduit.stream)) conduit.leave(this.now());
    });
  }

  /** Resolves when no connection is left. Undefined if there is none. */
  gone(): Promise<void> | undefined {
    if (this.conduits.empty && this.#associations.length === 0) return undefined;
    return this.#leave();
  }

  async #leave(): Promise<void> {
    if (!this.conduits.empty) {
      await new Promise<void>((resolve) => {
        this.#onLastGone = resolve;
      });
    }
    for (const associations of this.#associations) await associations.leave();
  }

  close(): void {
    for (const associations of this.#associations) associations.close();
  }

  #inSlices<T>(items: readonly T[], end: (item: T) => void): Promise<void> | undefined {
    return inSlices(items, ENDS_PER_TURN, (run) => this.#host.clock.soon(run), end);
  }

  // Callbacks of conduits and the network

  now(): Micros {
    return this.#host.now();
  }

  handleInput(conduit: Conduit, now: Micros): void {
    this.#loop.enqueue(conduit);
    this.#loop.drain(now);
  }

  handleCopied(conduit: Conduit): void {
    this.#loop.enqueue(conduit);
  }

  rejectsRequest(conduit: Conduit): boolean {
    return this.#host.faults.rejectsRequest(conduit);
  }

  handleJoined(conduit: Conduit): void {
    this.#host.faults.applyTo(conduit);
  }

  handleGone(conduit: Conduit): void {
    this.conduits.forget(conduit);
    this.#loop.forget(conduit);
    this.#host.watchErrored();
    if (this.conduits.empty) this.#onLastGone();
  }

  handleNudged({ endpoint }: Conduit, text: string): void {
    this.#notice('debug', 'connection', endpoint.device.name, endpoint.remote, text);
  }

  handleNoRequest({ endpoint }: Conduit, text: string): void {
    this.#notice('info', 'refused', endpoint.device.name, endpoint.remote, text);
  }

  handleLink(listener: CmId, incoming: Link): void {
    this.conduits.accept(listener, incoming);
  }

  handleRefused(remote: SocketFacts['remote'], text: string): void {
    this.#notice('warn', 'refused', undefined, remote, text);
  }

  handleListenerError(listener: CmId, error: Error): void {
    this.#notice('warn', 'socket', listener.device, undefined, error.message);
  }

  // Steps

  #act(effect: CmEffect, now: Micros): void {
    switch (effect.type) {
      case 'dial':
        this.conduits.dial(effect.endpoint, effect.remote, now);
        return;
      case 'cancelDial':
        this.conduits.cancelDial(effect.endpoint);
        return;
      case 'touched':
        this.conduits.touched(effect.endpoint);
        return;
      case 'deliver':
        this.#host.handleCmEvent(effect.event);
        return;
      default:
        effect satisfies never;
    }
  }

  #notice(
    level: HostNotice['level'],
    kind: string,
    device: string | undefined,
    remote: HostNotice['remote'],
    text: string,
  ): void {
    this.#host.notice({ level, kind, device, remote, text });
  }
}
