/**
 * A real host and a raw peer that face each other over TCP on the loopback interface: what the peer
 * sends is written out byte by byte, and what the host sends is parsed by code that shares nothing
 * with it. Tests compare what the peer receives and what the host's consumer polls.
 */
import { NEVER } from '#base/time';
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType } from '#contract/verbs/enums';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import type { Link } from '#daemon/host/links/link';
import type { HostSystem, LinkPort, Network } from '#daemon/host/links/network';
import { hostSystem } from '#daemon/host/links/system';
import type { WireDefaults } from '#daemon/iwarp/cm/cm-types';
import type { DeviceProfile } from '#daemon/rnic/device-profile';
import { Consumer, type ConsumerOptions } from './consumer.ts';
import { bytesOf, concat } from './hex.ts';
import { mpaReply, mpaRequest } from './mpa-frames.ts';
import { quiet, until } from './patience.ts';
import { type Fpdu, FpduWriter, type Framing, readFpdus } from './raw-fpdu.ts';
import { RawListener, RawPeer } from './raw-peer.ts';
import { NO_WISHES, RnicNode } from './rnic-node.ts';

/** Long enough for any machine. A test that waits for a timeout sets its own, in `wire`. */
const TIMEOUT_MICROS = 20_000_000;
const STARTUP_HEADER_BYTES = 20;
const DDP_UNTAGGED_HEX = 36;
/** Writes no bytes, and releases a responder (RFC 5044 §7.1.2 rule 4). */
const EMPTY_WRITE = 'c140 00000000 0000000000000000';

export interface FacingOptions {
  /** Options of the host's device. Default: the client-server model. */
  readonly wire?: Partial<WireDefaults>;
  readonly profile?: Partial<DeviceProfile>;
  /** The consumer's parameters of `connect` or `accept`. */
  readonly wishes?: Partial<CMParameters>;
  /** The raw peer's startup frame; default: revision 2, CRC, depths of 8. */
  readonly frame?: Uint8Array;
  readonly consumer?: ConsumerOptions;
  /** The bytes of a TCP segment, as the host's sockets report them. */
  readonly emssBytes?: () => number;
  /** Address of the listener that the raw initiator connects to. */
  readonly address?: string;
  /** False: the peer of a responder sends nothing after its Request, so the host may not send. */
  readonly released?: boolean;
}

const opened: (() => void | Promise<void>)[] = [];

/** Closes everything that the tests have opened; for `afterEach`. */
export async function closeFacing(): Promise<void> {
  await Promise.all(opened.splice(0).map((close) => close()));
}

/** A host with one device for loopback. */
export function facingNode({ wire, profile, emssBytes }: FacingOptions = {}): RnicNode {
  const node = new RnicNode({
    ...(emssBytes === undefined ? {} : { system: systemOfSegments(emssBytes) }),
    devices: [
      {
        name: 'iwarp0',
        addresses: [],
        ...(profile === undefined ? {} : { profile }),
        wire: {
          peerToPeer: false,
          startupTimeoutMicros: TIMEOUT_MICROS,
          closeTimeoutMicros: TIMEOUT_MICROS,
          nudgeDelayMicros: NEVER,
          ...wire,
        },
      },
    ],
  });
  opened.push(() => node.host.close());
  return node;
}

/** The system of this process, with links that report the segment size of `emssBytes`. */
function systemOfSegments(emssBytes: () => number): HostSystem {
  const system = hostSystem();
  const narrow = (link: Link): Link => {
    link.emssBytes = emssBytes;
    return link;
  };
  const hold = (network: Network, address: string, port: number): LinkPort => {
    const held = network.hold(address, port);
    const { listen, dial } = held;
    held.listen = (onLink, onError) => listen.call(held, (link) => onLink(narrow(link)), onError);
    held.dial = (remote, onConnected, onFailed) =>
      dial.call(held, remote, (link) => onConnected(narrow(link)), onFailed);
    return held;
  };
  return {
    ...system,
    network: {
      hold: (address, port) => hold(system.network, address, port),
      sourceAddress: (destination, source) => system.network.sourceAddress(destination, source),
    },
  };
}

/** A raw peer that has connected to a listener of the host, and the listener. */
export async function dialIn(
  node: RnicNode,
  address = '127.0.0.1',
): Promise<{ peer: RawPeer; listener: HostId }> {
  const { id, at } = node.listen(address);
  const peer = await RawPeer.dial(at.port, address);
  opened.push(() => peer.destroy());
  return { peer, listener: id };
}

/** A raw peer to which the host has connected and sent its Request. */
export async function dialOut(
  node: RnicNode,
  consumer: Consumer,
  wishes: Partial<CMParameters> = {},
): Promise<{ peer: RawPeer; id: HostId }> {
  const listener = await RawListener.open();
  opened.push(() => listener.close());
  const id = await node.resolved({ address: '127.0.0.1', port: listener.port });
  node.host.cm.connect(id, consumer.qp, { ...NO_WISHES, ...wishes });
  const peer = await listener.peer();
  opened.push(() => peer.destroy());
  await startupOf(peer);
  return { peer, id };
}

export async function startupOf(peer: RawPeer): Promise<Buffer> {
  await peer.receive(STARTUP_HEADER_BYTES);
  const length = STARTUP_HEADER_BYTES + peer.received.readUInt16BE(18);
  await peer.receive(length);
  return peer.received.subarray(0, length);
}

/** Resolves once everything in flight within this process and its sockets has arrived. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  await quiet(2);
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

export class Facing {
  readonly node: RnicNode;
  readonly consumer: Consumer;
  readonly id: HostId;
  readonly peer: RawPeer;
  /** The host's startup frame. */
  readonly startup: Buffer;
  /** The `established` event that the consumer got. */
  readonly established: HostCmEvent;
  /** Makes the peer's FPDUs. */
  readonly writer: FpduWriter;
  readonly #framing: Framing;
  #taken = 0;

  private constructor(
    parts: { node: RnicNode; consumer: Consumer; id: HostId; peer: RawPeer; startup: Buffer },
    established: HostCmEvent,
    peersFlags: number,
  ) {
    this.node = parts.node;
    this.consumer = parts.consumer;
    this.id = parts.id;
    this.peer = parts.peer;
    this.startup = parts.startup;
    this.established = established;
    const flags = parts.startup[16] ?? 0;
    const crc = ((flags | peersFlags) & 0x40) !== 0;
    // The M flag of its receiver decides on markers in a direction (RFC 5044 §7.1.1).
    this.writer = new FpduWriter({ crc, markers: (flags & 0x80) !== 0 });
    this.#framing = { crc, markers: (peersFlags & 0x80) !== 0 };
  }

  /** The host accepts a raw initiator. */
  static async responder(options: FacingOptions = {}): Promise<Facing> {
    const node = facingNode(options);
    return await Facing.accept(node, new Consumer(node, options.consumer), options);
  }

  /** The host accepts a raw initiator for an existing consumer. */
  static async accept(
    node: RnicNode,
    consumer: Consumer,
    options: FacingOptions = {},
  ): Promise<Facing> {
    const { peer, listener } = await dialIn(node, options.address);
    const frame = options.frame ?? mpaRequest();
    peer.say(frame);
    const { id } = await node.event(listener);
    node.host.cm.accept(id, consumer.qp, { ...NO_WISHES, ...options.wishes });
    const startup = await startupOf(peer);
    const established = await establishedEvent(node, id);
    const facing = new Facing({ node, consumer, id, peer, startup }, established, frame[16] ?? 0);
    if (options.released !== false) {
      facing.say(EMPTY_WRITE);
      await settled();
    }
    return facing;
  }

  /** The host connects to a raw responder. */
  static async initiator(options: FacingOptions = {}): Promise<Facing> {
    const node = facingNode(options);
    const consumer = new Consumer(node, options.consumer);
    const { peer, id } = await dialOut(node, consumer, options.wishes);
    const frame = options.frame ?? mpaReply();
    peer.say(frame);
    const startup = await startupOf(peer);
    const established = await establishedEvent(node, id);
    return new Facing({ node, consumer, id, peer, startup }, established, frame[16] ?? 0);
  }

  /** Sends ULPDUs, each in hexadecimal, in one write. */
  say(...ulpdus: readonly string[]): void {
    this.peer.say(this.frame(...ulpdus));
  }

  /** The bytes of the next FPDUs. */
  frame(...ulpdus: readonly string[]): Uint8Array {
    return concat(...ulpdus.map((ulpdu) => this.writer.write(bytesOf(ulpdu))));
  }

  /** Every FPDU of the host so far, as it was in the stream. */
  fpdus(): Fpdu[] {
    return readFpdus(this.peer.received.subarray(this.startup.length), this.#framing);
  }

  /** The next `count` ULPDUs of the host, in hexadecimal; their CRCs and PADs have been checked. */
  async receive(count: number): Promise<string[]> {
    await until(
      `${count} FPDUs, ${this.fpdus().length - this.#taken} came`,
      () => this.fpdus().length >= this.#taken + count,
    );
    return this.receivedNow().slice(0, count);
  }

  /** Received ULPDUs that were not taken. */
  receivedNow(): string[] {
    const fpdus = this.fpdus().slice(this.#taken);
    this.#taken += fpdus.length;
    for (const { crcGood, pad } of fpdus) {
      if (!crcGood && this.#framing.crc) throw new Error('the host sent a bad CRC');
      if (/[^0]/.test(pad)) throw new Error(`the host sent PAD ${pad}`);
    }
    return fpdus.map(({ ulpdu }) => ulpdu);
  }

  /** The bytes that the host sends until it has no more. */
  async hearAll(): Promise<string[]> {
    await settled();
    return this.receivedNow();
  }

  /** The payload of the Terminate that the host ends the stream with; it must be the next ULPDU. */
  async terminate(): Promise<string> {
    await this.peer.overs();
    const ulpdus = this.receivedNow();
    if (ulpdus.length !== 1) throw new Error(`not one last ULPDU but ${JSON.stringify(ulpdus)}`);
    const [ulpdu = ''] = ulpdus;
    const header = ulpdu.slice(0, DDP_UNTAGGED_HEX);
    if (header !== '414700000000000000020000000100000000') {
      throw new Error(`no Terminate but ${ulpdu}`);
    }
    return ulpdu.slice(DDP_UNTAGGED_HEX);
  }

  /** The consumer's next connection event. */
  async event(): Promise<HostCmEvent> {
    return await this.node.event(this.id);
  }
}

async function establishedEvent(node: RnicNode, id: HostId): Promise<HostCmEvent> {
  const event = await node.event(id);
  if (event.type !== CMEventType.established) throw new Error(`not established: ${event.text}`);
  return event;
}
