/**
 * A hostile peer of SCTP: messages with a wrong payload protocol, forged session control, DDP-SSNs
 * out of order or outside any window, segments too early or too late, cut messages, or none at all.
 */
import type { Association, AssociationUser, MessageKind } from '#daemon/host/sctp/association';
import { PayloadProtocol, SessionFunction } from '#daemon/iwarp/sctp/session-message';
import { NO_BYTES } from '#test/support/hex';
import { must } from '../rules.ts';
import type { Setting, SimHost } from '../sim-host.ts';
import type { SimAssociation } from './sim-association.ts';

/** Actions of a hostile peer once the association is up. */
export const SCTP_MANNERS = [
  'silent',
  'garbage',
  'garbage-later',
  'wrong-protocol',
  'bad-stag',
  'deaf-bad-stag',
  'forged-control',
  'truncated',
  'repeated-ssn',
  'ssn-behind',
  'ssn-too-far',
  'gap',
  'early-segment',
  'early-flood',
  'segment-behind-terminate',
  'half-closed',
  'shutdown',
  'reset',
  'vanished',
  'trickle',
  'other-adaptation',
] as const;
type SctpManner = (typeof SCTP_MANNERS)[number];

/** An RDMA Write to an unknown STag, and one of no bytes, which is legal (RFC 5040 §4, RFC 5041 §4). */
const BAD_WRITE = Uint8Array.of(0xc1, 0x40, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4);
const EMPTY_WRITE = Uint8Array.of(0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
const TRICKLE_MICROS = [900_000, 9_000_000] as const;
const START_DELAY_MICROS = 3000;
/** IRD and ORD of 4, without RTR. */
const DEPTHS = Uint8Array.of(0, 4, 0, 4);
const STREAM_ID = 0;
const SSN_MASK = 0xffff;
/** More than a host keeps before its program has answered. */
const EARLY_SEGMENTS = 80;
const EARLY_BYTES = 1000;
const GAP_MESSAGES_MAX = 300;

/** The world of a hostile peer. */
interface HostileSetting extends Setting {
  readonly hosts: readonly SimHost[];
}

/** See the module's comment. */
export class HostileAssociation implements AssociationUser {
  readonly manner: SctpManner;
  readonly initiator: boolean;
  gone = false;
  readonly #world: HostileSetting;
  readonly #association: SimAssociation;
  #ssn = 0;
  #started = false;
  /** Messages sent when the host must find the error. */
  #badAt: number | undefined;

  constructor(
    world: HostileSetting,
    association: Association,
    manner: SctpManner,
    initiator: boolean,
  ) {
    this.#world = world;
    this.#association = association as SimAssociation;
    this.manner = manner;
    this.initiator = initiator;
    association.user = this;
    const { port } = association.local;
    world.log?.(
      `  a ${manner} peer ${initiator ? 'connects from' : 'is connected to at'} SCTP port ${port}`,
    );
    if (!initiator) return;
    if (manner === 'garbage') this.#garbage();
    else if (manner === 'early-segment') this.#segment(BAD_WRITE);
    else if (manner === 'early-flood') this.#flood();
    else if (manner !== 'silent') this.#initiate();
  }

  handleMessage(_stream: number, protocol: number, _unordered: boolean, bytes: Uint8Array): void {
    if (this.#started || protocol !== PayloadProtocol.sessionControl) return;
    this.#started = true;
    if (this.#world.prng.oneIn(12)) return;
    if (this.initiator) this.#later(() => this.#act());
    else this.#answer(bytes);
  }

  handleWritable(): void {}
  handleAcknowledged(): void {}
  handlePathChanged(): void {}
  handlePeerShutdown(): void {}

  handleEnded(): void {
    this.gone = true;
  }

  /** Ends its association if it is still up. */
  leave(): void {
    this.#association.abort();
    this.gone = true;
  }

  /** Checks that the queue pair it talks to knows of the error once it is read. */
  check(): void {
    if (this.#badAt === undefined || this.gone) return;
    const { local, remote, readCount } = this.#association;
    if (readCount < this.#badAt) return;
    const host = this.#world.hosts.find(({ addresses }) => addresses.includes(remote.address));
    if (host === undefined || host.slowed || host.clock.turns > 0) return;
    for (const { endpoint } of host.host.conduits()) {
      if (endpoint.local.port !== remote.port || endpoint.remote.port !== local.port) continue;
      if (endpoint.remote.address !== local.address || endpoint.phase !== 'established') continue;
      const running = host.queuePair(endpoint.device.name, endpoint.qp?.qpn ?? 0)?.state === 3;
      must(!running, 'reported', `a queue pair is still in RTS after '${this.manner}'`);
    }
  }

  #initiate(): void {
    if (this.#world.prng.oneIn(2)) this.#control(SessionFunction.initiate, NO_BYTES);
    else this.#control(SessionFunction.enhancedInitiate, DEPTHS);
  }

  #answer(initiate: Uint8Array): void {
    const { manner } = this;
    if (manner === 'silent') return;
    if (manner === 'garbage') this.#garbage();
    else if (manner === 'early-segment' || manner === 'early-flood') this.#segment(BAD_WRITE);
    else {
      const enhanced = initiate[3] === SessionFunction.enhancedInitiate;
      // Echo the initiator's enhanced word, which it accepts.
      if (enhanced) this.#control(SessionFunction.enhancedAccept, initiate.slice(4, 8));
      else this.#control(SessionFunction.accept, NO_BYTES);
      this.#later(() => this.#act());
    }
  }

  #act(): void {
    switch (this.manner) {
      case 'garbage-later':
        this.#garbage();
        return;
      case 'wrong-protocol':
        this.#send(this.#numbered(EMPTY_WRITE), this.#world.prng.choose([0, 18, 0x1000_0000]));
        this.#mark();
        return;
      case 'bad-stag':
        this.#segment(BAD_WRITE);
        this.#mark();
        return;
      case 'deaf-bad-stag':
        this.#later(() => this.#association.pauseReading(), 10);
        this.#segment(BAD_WRITE);
        this.#mark();
        return;
      case 'forged-control':
        // Every function but Terminate, and two that no RFC defines.
        this.#control(this.#world.prng.choose([0, 1, 2, 3, 5, 6, 7, 8]), DEPTHS);
        this.#mark();
        return;
      case 'truncated':
        this.#truncated();
        this.#mark();
        return;
      case 'repeated-ssn':
        this.#segment(EMPTY_WRITE);
        this.#skip(-1);
        this.#segment(EMPTY_WRITE);
        this.#mark();
        return;
      case 'ssn-behind':
        this.#skip(-this.#world.prng.between(1, 1000));
        this.#segment(EMPTY_WRITE);
        this.#mark();
        return;
      case 'ssn-too-far':
        this.#skip(this.#world.prng.between(4097, 32_000));
        this.#segment(EMPTY_WRITE);
        this.#mark();
        return;
      case 'gap':
        this.#skip(1);
        for (let left = this.#world.prng.between(1, GAP_MESSAGES_MAX); left > 0; left -= 1) {
          this.#segment(EMPTY_WRITE);
        }
        return;
      case 'segment-behind-terminate':
        this.#control(SessionFunction.terminate, NO_BYTES);
        this.#segment(EMPTY_WRITE);
        this.#mark();
        return;
      case 'half-closed':
        this.#control(SessionFunction.terminate, NO_BYTES);
        return;
      case 'shutdown':
        this.#association.shutdown();
        return;
      case 'reset':
        this.#association.abort();
        this.gone = true;
        return;
      case 'vanished':
        this.#association.vanish();
        return;
      case 'trickle':
        this.#trickle();
        return;
      case 'silent':
      case 'garbage':
      case 'early-segment':
      case 'early-flood':
      case 'other-adaptation':
        return;
      default:
        this.manner satisfies never;
    }
  }

  /** More than a host keeps before its program has answered. */
  #flood(): void {
    this.#initiate();
    const segment = new Uint8Array(EARLY_BYTES);
    segment.set(EMPTY_WRITE);
    for (let left = EARLY_SEGMENTS; left > 0; left -= 1) this.#segment(segment);
  }

  #truncated(): void {
    const { segment, sessionControl } = PayloadProtocol;
    const bytes = this.#numbered(BAD_WRITE);
    const cases: readonly (readonly [number, number])[] = [
      [1, segment],
      [3, segment],
      [10, segment],
      [2, sessionControl],
      [3, sessionControl],
    ];
    const [length, protocol] = this.#world.prng.choose(cases);
    this.#send(bytes.subarray(0, length), protocol);
  }

  #trickle(): void {
    if (this.gone) return;
    this.#segment(EMPTY_WRITE);
    this.#world.time.after(this.#world.prng.choose(TRICKLE_MICROS), () => this.#trickle());
  }

  #garbage(): void {
    const { prng } = this.#world;
    for (let left = prng.between(1, 5); left > 0; left -= 1) {
      const bytes = new Uint8Array(prng.between(1, 200));
      prng.fill(bytes);
      this.#send(prng.oneIn(2) ? bytes : this.#numbered(bytes), prng.choose([0, 16, 17, 17]));
    }
  }

  /** Every message sent so far must be read for the error to be found: they overtake each other. */
  #mark(): void {
    this.#badAt = this.#association.sentCount;
  }

  #later(run: () => void, times = 1): void {
    const micros = this.#world.prng.between(1, START_DELAY_MICROS) * times;
    this.#world.time.after(micros, () => {
      if (!this.gone) run();
    });
  }

  #skip(count: number): void {
    this.#ssn = (this.#ssn + count) & SSN_MASK;
  }

  #numbered(bytes: Uint8Array): Uint8Array {
    const message = Uint8Array.of(this.#ssn >> 8, this.#ssn & 0xff, ...bytes);
    this.#skip(1);
    return message;
  }

  #segment(bytes: Uint8Array): void {
    this.#send(this.#numbered(bytes), PayloadProtocol.segment);
  }

  #control(code: number, data: Uint8Array): void {
    const message = this.#numbered(Uint8Array.of(0, code, ...data));
    this.#send(message, PayloadProtocol.sessionControl);
  }

  #send(bytes: Uint8Array, payloadProtocol: number): void {
    const unordered = !this.#world.prng.oneIn(4);
    const kind: MessageKind = { payloadProtocol, unordered, acknowledgeAtOnce: false };
    this.#association.send(STREAM_ID, kind, bytes);
  }
}
