/**
 * A hostile peer: sends garbage, nothing, one byte at a time, or closes half a connection. It works
 * on a raw link whose other end is a real host.
 */

import { transmitOf } from '#base/transmit';
import type { Link, LinkUser } from '#daemon/host/links/link';
import { emitFpdu, mpaReply, mpaRequest } from '../support/mpa-frames.ts';
import type { SimLink } from '../support/sim-link.ts';
import { must } from './rules.ts';
import type { Setting, SimHost } from './sim-host.ts';

/** Actions of a hostile peer once TCP is connected. */
export const MANNERS = [
  'silent',
  'garbage',
  'garbage-later',
  'bad-stag',
  'bad-crc',
  'trickle',
  'half-closed',
  'reset',
  'deaf-bad-stag',
] as const;
/** Behaviours that a host needs some time to end. */
export const STUBBORN = ['trickle', 'deaf-bad-stag'] as const;
type Manner = (typeof MANNERS)[number];

/** A tagged segment of a Write to an unknown STag (RFC 5040 §4, RFC 5041 §4). */
const BAD_WRITE = Uint8Array.of(0xc1, 0x40, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4);
/** The header of an FPDU of 60,000 bytes: its payload can be sent byte by byte, for a long time. */
const LONG_FPDU_HEAD = Uint8Array.of(0xea, 0x60, 0xc1, 0x40);
const TRICKLE_MICROS = [900_000, 9_000_000] as const;
const START_DELAY_MICROS = 3000;

/** The world of a hostile peer. */
interface HostileSetting extends Setting {
  readonly hosts: readonly SimHost[];
}

/** See the module's comment. */
export class HostilePeer implements LinkUser {
  readonly manner: Manner;
  readonly initiator: boolean;
  readonly #world: HostileSetting;
  readonly #link: SimLink;
  #started = false;
  /** Stream offset at which the host must have found the error. */
  #badAt: number | undefined;
  gone = false;

  constructor(world: HostileSetting, link: Link, manner: Manner, initiator: boolean) {
    this.#world = world;
    this.#link = link as SimLink;
    this.manner = manner;
    this.initiator = initiator;
    link.user = this;
    world.log?.(
      `  a ${manner} peer ${initiator ? 'connects from' : 'is connected to at'} port ${link.localPort}`,
    );
    if (manner === 'deaf-bad-stag') this.#deafen();
    if (!initiator) return;
    if (manner === 'garbage') this.#garbage();
    else if (manner !== 'silent') this.#write(mpaRequest());
  }

  handleBytes(bytes: Uint8Array): void {
    if (this.#started) return;
    this.#started = true;
    if (this.#world.prng.oneIn(12)) return;
    if (this.initiator) this.#act();
    else if (bytes.length >= 20) this.#answer();
  }

  handleFlushed(): void {}

  handlePeerClosed(): void {
    if (this.manner === 'trickle' || this.manner === 'silent') return;
    if (this.#world.prng.oneIn(2)) this.#link.finish();
  }

  handleClosed(): void {
    this.gone = true;
  }

  /** Ends its link if it is still open. */
  leave(): void {
    this.#link.reset();
  }

  /** Checks that the host's queue pair has found the error once it is delivered. */
  check(): void {
    if (this.#badAt === undefined || this.gone) return;
    if (this.#link.deliveredBytes < this.#badAt) return;
    const host = this.#world.hosts.find(({ addresses }) =>
      addresses.includes(this.#link.remoteAddress),
    );
    if (host === undefined || host.slowed || host.clock.turns > 0) return;
    for (const { endpoint } of host.host.conduits()) {
      const { local, remote, phase, qp } = endpoint;
      if (local.port !== this.#link.remotePort || remote.port !== this.#link.localPort) continue;
      if (remote.address !== this.#link.localAddress || phase !== 'established') continue;
      const running = host.queuePair(endpoint.device.name, qp?.qpn ?? 0)?.state === 3;
      must(!running, 'reported', `a queue pair is still in RTS after '${this.manner}'`);
    }
  }

  #answer(): void {
    const { manner } = this;
    if (manner === 'silent') return;
    if (manner === 'garbage') this.#garbage();
    else {
      this.#write(mpaReply());
      this.#later(() => this.#act());
    }
  }

  #act(): void {
    const { prng } = this.#world;
    switch (this.manner) {
      case 'garbage-later':
        this.#garbage();
        return;
      case 'bad-stag':
      case 'deaf-bad-stag':
        // An initiator must send a valid FPDU before the responder may send; the error follows it.
        this.#later(() => {
          this.#write(emitFpdu(BAD_WRITE));
          this.#badAt = this.#link.writtenBytes;
        });
        return;
      case 'bad-crc': {
        const fpdu = emitFpdu(BAD_WRITE);
        fpdu[fpdu.length - 1] = (fpdu.at(-1) ?? 0) ^ 1;
        this.#write(fpdu);
        return;
      }
      case 'trickle':
        this.#write(LONG_FPDU_HEAD);
        this.#trickle();
        return;
      case 'half-closed':
        this.#later(() => this.#link.finish());
        return;
      case 'reset':
        this.#later(() => this.#link.reset());
        return;
      case 'silent':
      case 'garbage':
        return;
      default:
        this.manner satisfies never;
    }
    prng.next();
  }

  /** Stops reading once startup is complete. */
  #deafen(): void {
    this.#later(() => this.#link.pauseReading(), 10);
  }

  #trickle(): void {
    if (this.gone) return;
    this.#write(Uint8Array.of(0));
    this.#world.time.after(this.#world.prng.choose(TRICKLE_MICROS), () => this.#trickle());
  }

  #garbage(): void {
    const { prng } = this.#world;
    const bytes = new Uint8Array(prng.between(1, 200));
    for (let index = 0; index < bytes.length; index += 1) bytes[index] = prng.next();
    this.#write(bytes);
  }

  #later(run: () => void, times = 1): void {
    const micros = this.#world.prng.between(1, START_DELAY_MICROS) * times;
    this.#world.time.after(micros, () => {
      if (!this.gone) run();
    });
  }

  #write(bytes: Uint8Array): void {
    if (this.#link.writable) this.#link.write(transmitOf(bytes));
  }
}
