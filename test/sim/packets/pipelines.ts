/**
 * Users who send a host's emulated kernel many requests before they take an answer. A request takes some
 * virtual time, of which a turn has a limited share for them.
 */
import { Role } from '#contract/protocol/ipc-frames';
import {
  CommandShare,
  SHARE_MS,
  SHARE_PERIOD_MS,
  type TurnClock,
} from '#daemon/clients/command-pace';
import { commands, le, plain, RSP } from '#test/support/kernel-commands';
import type { VirtualTime } from '#test/support/virtual-time';
import { must } from '../rules.ts';
import { KernelConnection, processOf } from './kernel-process.ts';
import type { PacketHost, PacketSetting } from './packet-host.ts';

const UID = 2000;
const REQUESTS_MAX = 60;
/** Binary fractions of a millisecond, so that sums are exact. */
const FRACTIONS = 8;
const REQUEST_FRACTIONS_MAX = 24;
const SRQ_ENTRIES = 31;
const CREATE_SRQ = 32;
const MODIFY_SRQ = 33;
const SET_SIZE = 1;
const SET_LIMIT = 2;

/** Time that passes while requests are carried out. */
class WorkClock implements TurnClock {
  readonly #time: VirtualTime;
  #now = 0;
  /** Time spent in this turn, without its last request. */
  #turnMs = 0;
  #lastMs = 0;

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  now(): number {
    return this.#now;
  }

  readonly soon = (run: () => void): void => this.#time.soon(run);

  beginTurn(): void {
    this.#turnMs = 0;
    this.#lastMs = 0;
  }

  /** Nothing has happened for `ms`. */
  pass(ms: number): void {
    this.#now += ms;
  }

  /** A request has taken `ms`. */
  spend(ms: number): void {
    this.#now += ms;
    this.#turnMs += this.#lastMs;
    this.#lastMs = ms;
    must(this.#turnMs < SHARE_MS, 'share', () => {
      return `a request is carried out after ${this.#turnMs} ms of a turn`;
    });
  }
}

interface Pipeline {
  readonly file: KernelConnection;
  readonly srq: number;
  asked: number;
}

export class Pipelines {
  readonly #world: PacketSetting & { readonly hosts: readonly PacketHost[] };
  readonly #clocks = new Map<PacketHost, WorkClock>();
  readonly #open = new Map<PacketHost, Pipeline>();

  constructor(world: PacketSetting & { readonly hosts: readonly PacketHost[] }) {
    this.#world = world;
  }

  beginTurn(): void {
    for (const clock of this.#clocks.values()) clock.beginTurn();
  }

  /** Sends requests to a host, or closes the file while some may wait. */
  act(): void {
    const { prng, hosts } = this.#world;
    const host = prng.choose(hosts);
    const pipeline = this.#open.get(host) ?? this.#start(host);
    if (prng.oneIn(8)) {
      this.#open.delete(host);
      pipeline.file.close();
      return;
    }
    const requests: Uint8Array[] = [];
    for (let left = prng.between(1, REQUESTS_MAX); left > 0; left -= 1) {
      requests.push(prng.oneIn(3) ? commands.queryDevice() : this.#modification(pipeline));
    }
    this.#world.log?.(`  ${requests.length} requests to the kernel of ${host.name}`);
    pipeline.asked += requests.length;
    pipeline.file.send(requests);
  }

  /** Checks that every request has been carried out, and closes the files. */
  end(): void {
    for (const { file, asked } of this.#open.values()) {
      const { length } = file.replies;
      must(length === asked, 'once', () => `${length} answers of the kernel to ${asked} requests`);
      for (const { status } of file.replies) must(status >= 0, 'refused', `status ${status}`);
      file.close();
    }
    this.#open.clear();
  }

  #start(host: PacketHost): Pipeline {
    const { prng, time } = this.#world;
    const known = this.#clocks.get(host);
    const clock = known ?? new WorkClock(time);
    this.#clocks.set(host, clock);
    // A process is older than a share when it makes one: the new share's time does not begin at 0.
    known?.pass(SHARE_PERIOD_MS);
    const credentials = processOf(UID, `pipelines of ${host.name}`);
    const share = new CommandShare(clock);
    const file = new KernelConnection(host, Role.uverbs, { credentials, share, deviceIndex: 0 });
    file.must(commands.getContext());
    const pd = file.must(commands.allocPD()).getUint32(0, true);
    const sizes = `${le(SRQ_ENTRIES)} ${le(1)} ${le(0)}`;
    const made = file.must(plain(CREATE_SRQ, 40, `${RSP} ${le(1, 8)} ${le(pd)} ${sizes}`));
    // From now on requests take time.
    file.onAnswer = () => clock.spend(prng.between(1, REQUEST_FRACTIONS_MAX) / FRACTIONS);
    const pipeline = { file, srq: made.getUint32(0, true), asked: 0 };
    this.#open.set(host, pipeline);
    return pipeline;
  }

  /** Sets the limit of the shared receive queue, or sometimes its size. */
  #modification({ srq }: Pipeline): Uint8Array {
    const { prng } = this.#world;
    const mask = prng.oneIn(20) ? SET_SIZE : SET_LIMIT;
    const limit = prng.below(SRQ_ENTRIES + 1);
    return plain(MODIFY_SRQ, 16, `${le(srq)} ${le(mask)} ${le(SRQ_ENTRIES)} ${le(limit)} ${RSP}`);
  }
}
