/**
 * A real queue pair of a RoCE device and a raw peer that face each other over UDP on the loopback
 * interface: what the peer sends is written out, and what the queue pair sends is read by code that
 * shares nothing with it.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { type AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { gidBytes } from '#daemon/host/host-addresses';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import type { RoceCounters } from '#daemon/host/roce/roce-counters';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import { concat, hexOf } from './hex.ts';
import { ownAddress } from './own-address.ts';
import { quiet, until } from './patience.ts';
import { MASKS, PEER, VALUES } from './program-steps.ts';
import {
  RAW_PORT,
  type RawFlow,
  type RawPacket,
  rawIcrc,
  readPacket,
  writePacket,
} from './raw-roce.ts';
import { RoceEnd } from './roce-host.ts';

/** The device, its peer, and one that is not its peer. */
const OURS = ownAddress(80);
export const [THEIRS, STRANGERS] = [ownAddress(81), ownAddress(82)];
/** Number of the peer's queue pair, and the first PSN of each direction. */
export const PEER_QPN = 0x00_0777;
export const PEER_PSN = 0xff_fffe;
export const OUR_PSN = 0x20_0000;
const ICRC_BYTES = 4;
/** 256 bytes, so that a few packets make a message. */
const SMALLEST_MTU = 1;
/** Long, so that a slow machine retransmits nothing: 4.096 µs · 2^21, about 9 s. */
const TIMEOUT = 21;

/** Fields of a packet that the peer sends; its queue pair and P_Key are right unless given. */
export type Said = Partial<RawPacket> & Pick<RawPacket, 'opcode'>;

/** See the module's comment. */
export class RoceFacing implements AsyncDisposable {
  readonly host: RnicHost;
  /** The address of the device. */
  readonly address = OURS;
  readonly end: RoceEnd;
  /** Every packet of the queue pair. */
  readonly heard: RawPacket[] = [];
  /** Its asynchronous events. */
  readonly events: AsyncEventType[] = [];
  readonly #socket: Socket;
  readonly #wrong: string[] = [];
  #taken = 0;
  readonly #known = new Set<string>();

  private constructor(host: RnicHost, socket: Socket, type: QPType) {
    this.host = host;
    this.#socket = socket;
    this.end = new RoceEnd(this, 0, type, (bytes) => new ViewBacking(bytes));
    host.onAsync = (_device, { event }) => this.events.push(event);
    socket.on('message', (bytes, { address, port }) => this.#hear(bytes, address, port));
  }

  /** Connects a queue pair of this type to the peer, with `values` in place of the usual attributes. */
  static async open(
    type: QPType = QPType.rc,
    values: Partial<QPModification> = {},
    state: QPState = QPState.RTS,
  ): Promise<RoceFacing> {
    const devices = [{ name: 'roce0', addresses: [OURS], transport: 'roce' as const }];
    const host = new RnicHost({ system: hostSystem(), devices, roce: ROCE_NETWORK });
    const socket = createSocket('udp4');
    socket.bind(RAW_PORT, THEIRS);
    await once(socket, 'listening');
    const facing = new RoceFacing(host, socket, type);
    facing.bring(state, values);
    return facing;
  }

  device(): EmulatedDevice {
    return this.host.devices[0] as EmulatedDevice;
  }

  get counters(): RoceCounters {
    const counters = this.device().rocePort?.counters;
    if (counters === undefined) throw new Error('the device has no port');
    return counters;
  }

  /** Moves the queue pair from RESET to this state. */
  bring(state: QPState, values: Partial<QPModification> = {}): void {
    const { end } = this;
    const attributes = {
      ...VALUES,
      ahAttr: { ...PEER, dgid: gidBytes(THEIRS) },
      destQpNum: PEER_QPN,
      rqPsn: PEER_PSN,
      sqPsn: OUR_PSN,
      pathMtu: SMALLEST_MTU,
      accessFlags: 15,
      timeout: TIMEOUT,
      retryCnt: 7,
      ...values,
    };
    const [init, rtr, rts] = MASKS[end.qp.type];
    if (state === QPState.RESET) return;
    end.modify(QPState.INIT, init, attributes);
    if (state === QPState.INIT) return;
    end.modify(QPState.RTR, rtr, attributes);
    if (state === QPState.RTR) return;
    end.modify(QPState.RTS, rts, attributes);
  }

  /** Sends packets as the peer. */
  say(...packets: readonly Said[]): void {
    const flow = { from: THEIRS, fromPort: RAW_PORT, to: OURS };
    for (const packet of packets) this.sayBytes(this.sealed(packet, flow));
  }

  /** The bytes of a packet with its ICRC, between these addresses. */
  sealed(packet: Said, flow: RawFlow = { from: THEIRS, fromPort: RAW_PORT, to: OURS }): Uint8Array {
    const bytes = writePacket({ destQpn: this.end.qp.qpn, ...packet });
    return concat(bytes, rawIcrc(flow, bytes));
  }

  /** Sends the payload of a UDP datagram as the peer. */
  sayBytes(bytes: Uint8Array): void {
    this.#socket.send(bytes, RAW_PORT, OURS);
  }

  /** The next packets, including repeated ones. */
  async answers(count: number): Promise<RawPacket[]> {
    await until(
      () => `${count} packets after ${this.#taken}, ${this.heard.length} came`,
      () => this.heard.length >= this.#taken + count,
    );
    this.#check();
    this.#taken += count;
    return this.heard.slice(this.#taken - count, this.#taken);
  }

  /** The next packets without repetitions: a queue pair repeats requests until it gets answers. */
  async requests(count: number): Promise<RawPacket[]> {
    const found: RawPacket[] = [];
    while (found.length < count) {
      const [packet] = await this.answers(1);
      const text = JSON.stringify(packet);
      if (packet === undefined || this.#known.has(text)) continue;
      this.#known.add(text);
      found.push(packet);
    }
    return found;
  }

  /** Waits until this many datagrams came to the device, whatever it did with them. */
  async arrived(count: number): Promise<void> {
    const { counters } = this;
    await until(
      () => `${count} arrivals: ${JSON.stringify(counters)}`,
      () =>
        counters.receivedPackets +
          counters.icrcErrors +
          counters.malformed +
          counters.badPkeys +
          counters.unexpected >=
        count,
    );
  }

  /** Checks that nothing was sent since the last packet that was taken. */
  async silence(): Promise<void> {
    await quiet(30);
    this.#check();
    const more = this.heard.slice(this.#taken);
    if (more.length > 0) throw new Error(`not silent: ${JSON.stringify(more)}`);
  }

  /** The next completions of the queue pair: work request ids and statuses. */
  async outcome(count: number): Promise<[number, number][]> {
    const outcome: [number, number][] = [];
    await until(
      () => `${count} completions, ${JSON.stringify(outcome)} came`,
      () => {
        outcome.push(...this.end.completions.outcome());
        return outcome.length >= count;
      },
    );
    return outcome;
  }

  #hear(bytes: Uint8Array, from: string, fromPort: number): void {
    const packet = bytes.subarray(0, -ICRC_BYTES);
    const icrc = hexOf(rawIcrc({ from, fromPort, to: THEIRS }, packet));
    const sent = hexOf(bytes.subarray(-ICRC_BYTES));
    if (sent !== icrc) this.#wrong.push(`ICRC ${sent} instead of ${icrc} of ${hexOf(packet)}`);
    this.heard.push(readPacket(packet));
  }

  #check(): void {
    if (this.#wrong.length > 0) throw new Error(this.#wrong.join('\n'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.host.assertDeepInvariants();
    this.#socket.close();
    await this.host.close();
  }
}
