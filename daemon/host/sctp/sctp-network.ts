/**
 * A network around an inner one: addresses of SCTP devices have SCTP ports, all others those of the
 * inner network. A wildcard address has a port of each network, all under one number.
 */
import { addressFamily, IPV4_ANY, isWildcard } from '#base/address';
import { faultKind } from '#contract/protocol/faults';
import type { QueuePairName, TapLinkEnds } from '#contract/protocol/tap-records';
import type { SctpTransportKind } from '#contract/verbs/attributes';
import type { PacketTap } from '#daemon/capture/capture-tap';
import type { Fault } from '#daemon/faults/fault';
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import { DDP_ADAPTATION } from '#daemon/iwarp/sctp/sctp-layer';
import type { Dial, Link } from '../links/link.ts';
import {
  type Alarm,
  type HostClock,
  type LinkPort,
  type Network,
  NetworkError,
} from '../links/network.ts';
import type { Associations } from '../stream-carrier.ts';
import type { HostSctpTransport, SctpAddress, SctpPortOptions } from './association.ts';
import type { DdpStreams } from './ddp-streams.ts';
import { SctpFaults } from './sctp-faults.ts';
import { type LinkPortHost, SctpLinkPort } from './sctp-link-port.ts';
import { SctpRecorder } from './sctp-recorder.ts';
import { SharedAssociations } from './shared-associations.ts';
import type { PacketCarrier, PacketFilter, PacketObserver } from './udp-carrier.ts';

/**
 * Connections that share an association, if the peer has as many streams. They share its window and its
 * failures, so more connections get another association. A stream costs some hundred bytes.
 */
const STREAMS_MAX = 16;
// SCTP-5.1-01, SCTP-8-01
const PORT_OPTIONS: SctpPortOptions = { adaptation: DDP_ADAPTATION, streamCount: STREAMS_MAX };
/** How long associations without a session may take to end when the host closes. */
const LEAVE_PATIENCE_MICROS = 500_000;
/** Attempts to find a port that is free in every network. */
const FREE_PORT_TRIES = 16;

/** A transport whose packets can be captured and filtered. */
export interface PacketTransport extends HostSctpTransport {
  /** Shows every packet, until `close`. */
  observe(observer: PacketObserver): void;
  /** Filters every packet, until `close`. */
  addFilter(filterOf: (carrier: PacketCarrier) => PacketFilter): void;
}

/** Makes the transport of a host's SCTP devices. */
export type TransportMaker = (
  clock: HostClock,
  devices: readonly { readonly addresses: readonly string[]; readonly sctp: SctpTransportKind }[],
  isolated?: boolean,
) => PacketTransport;

/** Options: the inner network, and the SCTP transport and devices. */
interface SctpNetworkOptions {
  readonly inner: Network;
  readonly transport: PacketTransport;
  readonly clock: HostClock;
  /** The SCTP devices. */
  readonly devices: readonly { readonly name: string; readonly addresses: readonly string[] }[];
  /** There are devices over TCP, too. */
  readonly hasTcp: boolean;
  /** Captures packets. */
  readonly tap: PacketTap | undefined;
}

export class SctpNetwork implements Network, Associations, LinkPortHost {
  readonly #inner: Network;
  /** Devices by address. */
  readonly #devices: ReadonlyMap<string, string>;
  readonly #hasTcp: boolean;
  readonly #clock: HostClock;
  readonly shared = new SharedAssociations(this);
  /** Associations by their ends. A newer one may have replaced an older one with the same ends. */
  readonly #streams = new Map<string, DdpStreams>();
  readonly #all = new Set<DdpStreams>();
  /** Listening ports by address and port. */
  readonly #listeners = new Map<string, SctpLinkPort>();
  #onLastGone: (() => void) | undefined;
  readonly #transport: PacketTransport;
  #faults: SctpFaults | undefined;

  /** Opens the UDP port of each address. Throws `NetworkError` on failure. */
  constructor({ inner, transport, clock, devices, hasTcp, tap }: SctpNetworkOptions) {
    this.#inner = inner;
    this.#devices = new Map(
      devices.flatMap(({ name, addresses }) => addresses.map((each) => [each, name] as const)),
    );
    this.#hasTcp = hasTcp;
    this.#clock = clock;
    this.#transport = transport;
    try {
      for (const address of this.#devices.keys()) this.#transport.open(address);
      if (tap !== undefined) this.#transport.observe(new SctpRecorder(tap, this));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Sets the faults of packets; ignores those that do not apply to SCTP. */
  setFaults(faults: readonly Fault[] | undefined): void {
    const own = (faults ?? []).filter(({ spec }) => faultKind(spec.kind).on.includes('packets'));
    if (own.length > 0 && this.#faults === undefined) {
      this.#transport.addFilter((carrier) => {
        this.#faults = new SctpFaults(carrier, this, this.#clock);
        return this.#faults;
      });
    }
    this.#faults?.setFaults(own);
  }

  async leave(): Promise<void> {
    for (const streams of this.#all) if (streams.idle) streams.close();
    if (this.#all.size === 0) return;
    await new Promise<void>((resolve) => {
      const alarm = this.after(LEAVE_PATIENCE_MICROS, resolve);
      this.#onLastGone = () => {
        alarm.cancel();
        resolve();
      };
    });
    for (const streams of [...this.#all]) if (streams.idle) streams.abort();
  }

  forget(keeper: object): void {
    this.shared.forget(keeper);
  }

  /** Closes the UDP ports. Ports in use by connections close with them. */
  close(): void {
    this.#transport.close();
  }

  hold(address: string, port: number, v6Only?: boolean, account?: IdAccount): LinkPort {
    if (this.#devices.has(address)) return this.#holdSctp({ address, port }, port === 0, account);
    const covered = this.#coveredBy(address, v6Only === true);
    if (covered.length === 0) return this.#inner.hold(address, port, v6Only, account);
    for (let left = FREE_PORT_TRIES; ; left -= 1) {
      try {
        return this.#holdWide({ address, port }, covered, v6Only, account);
      } catch (error) {
        const taken = error instanceof NetworkError && error.code === 'EADDRINUSE';
        if (!taken || port !== 0 || left === 0) throw error;
      }
    }
  }

  sourceAddress(destination: string, source: string | undefined): string {
    return this.#inner.sourceAddress(destination, source);
  }

  // For links and recorders

  soon(run: () => void): void {
    this.#clock.soon(run);
  }

  after(delayMicros: number, run: () => void): Alarm {
    return this.#clock.after(delayMicros, run);
  }

  handleUp(streams: DdpStreams): void {
    this.#all.add(streams);
    this.#streams.set(keyOfStreams(streams), streams);
  }

  handleGone(streams: DdpStreams): void {
    this.#all.delete(streams);
    const key = keyOfStreams(streams);
    // A new association with the same ends may have replaced it.
    if (this.#streams.get(key) === streams) this.#streams.delete(key);
    if (this.#all.size === 0) this.#onLastGone?.();
  }

  get associationCount(): number {
    return this.#all.size;
  }

  // For ports

  listenerAt(address: string, port: number): SctpLinkPort | undefined {
    return this.#listeners.get(`${address} ${port}`);
  }

  handleListening(port: SctpLinkPort): void {
    this.#listeners.set(`${port.address} ${port.port}`, port);
  }

  handleReleased(port: SctpLinkPort): void {
    const key = `${port.address} ${port.port}`;
    if (this.#listeners.get(key) === port) this.#listeners.delete(key);
  }

  // For recorders

  deviceAt(address: string): string | undefined {
    return this.#devices.get(address);
  }

  queuePairOf(ends: TapLinkEnds, streamId: number | undefined): QueuePairName | undefined {
    return this.#streams.get(keyOf(ends))?.sessionOn(streamId)?.queuePair;
  }

  #holdSctp(local: SctpAddress, isAny: boolean, account: IdAccount | undefined): SctpLinkPort {
    const held = this.#transport.hold(local, { ...PORT_OPTIONS, account });
    return new SctpLinkPort(held, isAny, this);
  }

  /** The SCTP addresses that a wildcard covers; none for other addresses. */
  #coveredBy(address: string, v6Only: boolean): readonly string[] {
    const all = [...this.#devices.keys()];
    const ofFamily = all.filter((each) => addressFamily(each) === addressFamily(address));
    if (address === IPV4_ANY) return ofFamily;
    if (!isWildcard(address)) return [];
    return v6Only ? ofFamily : all;
  }

  #holdWide(
    { address, port }: SctpAddress,
    covered: readonly string[],
    v6Only: boolean | undefined,
    account: IdAccount | undefined,
  ): WidePort {
    const ports: LinkPort[] = [];
    try {
      if (this.#hasTcp) ports.push(this.#inner.hold(address, port, v6Only, account));
      for (const each of covered) {
        const local = { address: each, port: ports[0]?.port ?? port };
        ports.push(this.#holdSctp(local, port === 0, account));
      }
      return new WidePort(address, ports);
    } catch (error) {
      for (const held of ports) held.release();
      throw error;
    }
  }
}

function keyOfStreams({ association: { local, remote } }: DdpStreams): string {
  return `${local.address} ${local.port} ${remote.address} ${remote.port}`;
}

function keyOf({ localAddress, localPort, remoteAddress, remotePort }: TapLinkEnds): string {
  return `${localAddress} ${localPort} ${remoteAddress} ${remotePort}`;
}

/** Ports of several networks under one number, at a wildcard address. */
class WidePort implements LinkPort {
  readonly address: string;
  readonly port: number;
  /** The inner network's port, if any, is the first. */
  readonly #ports: readonly LinkPort[];

  constructor(address: string, ports: readonly LinkPort[]) {
    this.address = address;
    this.port = ports[0]?.port ?? 0;
    this.#ports = ports;
  }

  get listens(): boolean {
    return this.#ports.some(({ listens }) => listens);
  }

  get taken(): boolean {
    return this.#ports.some(({ taken }) => taken === true);
  }

  listen(onLink: (link: Link) => void, onError: (error: Error) => void): void {
    for (const port of this.#ports) port.listen(onLink, onError);
  }

  suspend(): void {
    for (const port of this.#ports) port.suspend();
  }

  narrow(address: string): LinkPort {
    const wanted = this.#ports.find((port) => port.address === address) ?? this.#ports[0];
    for (const port of this.#ports) if (port !== wanted) port.release();
    return wanted ?? this;
  }

  dial(): Dial {
    throw new NetworkError('EINVAL', 'cannot dial: the port is bound on several transports');
  }

  release(): void {
    for (const port of this.#ports) port.release();
  }
}
