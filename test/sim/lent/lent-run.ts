/**
 * Programs on iWARP devices of one host whose agents copy payload straight into each other's memory, under one seed.
 *
 * Host, queue pairs, streams, links and copies are the daemon's; the programs, their memory, their agents and the
 * time are simulated. Captures, faults, windows and the ends of memory and programs interfere with the copies.
 */
import type { FaultSpec } from '#contract/protocol/faults';
import { CMEventType, MWType } from '#contract/verbs/enums';
import { TapHub, type TapWatcher } from '#daemon/capture/tap-hub';
import type { HostId } from '#daemon/host/host-id';
import { MemoryNetwork } from '#daemon/host/links/memory-network';
import { RnicHost } from '#daemon/host/rnic-host';
import { Prng } from '#test/support/prng';
import { VirtualClock, VirtualTime } from '#test/support/virtual-time';
import { MemoryProgram } from '../roce/memory-program.ts';
import { must } from '../roce/rules.ts';
import { PoisoningPool } from '../sim-host.ts';
import { SimNetwork } from '../sim-network.ts';
import { LentEnd, UNUSED } from './lent-end.ts';

const STEPS_MAX = 60_000;
const LINGER_MICROS = 60_000_000;
const DEEP_CHECK_EVERY = 16;
const PORT = 7174;
const ADDRESSES = ['10.0.0.1', '10.0.0.2'];
const WISHES = {
  privateData: new Uint8Array(0),
  initiatorDepth: undefined,
  responderResources: undefined,
  wire: undefined,
};
const BREAKS = ['source', 'target', 'unmap', 'die', 'error', 'destroy', 'reset'] as const;
const INTERFERENCES = ['tap', 'fault', 'heal', 'window'] as const;

/** No message has as many equal bytes in a row, but an unused or poisoned chunk has. */
const EQUAL_BYTES_MAX = 64;

/** A capture. */
const WATCHER: TapWatcher = {
  wants: () => true,
  opened: () => undefined,
  joined: () => undefined,
  bytes: (_link, _by, bytes) => {
    let equal = 0;
    for (let at = 1; at < bytes.length; at += 1) {
      // A late Response may have bytes of targets that their program uses again, but no source is ever read by a peer.
      const same = bytes[at] === bytes[at - 1] && bytes[at] !== UNUSED;
      equal = same ? equal + 1 : 0;
      must(equal < EQUAL_BYTES_MAX, 'payload', 'a capture shows bytes that stand for others');
    }
  },
  finished: () => undefined,
  closed: () => undefined,
  skipped: () => undefined,
};

/** Counts of a run, which reveal an idle one. */
interface LentRunResult {
  readonly completions: number;
  readonly failures: number;
  readonly trace: number;
}

/** Runs one seed. Throws `BrokenRoceRule`, or the model's error. */
export async function runLent(seed: number, log?: (text: string) => void): Promise<LentRunResult> {
  return new Run(new Prng(seed), log).run();
}

class Run {
  readonly #prng: Prng;
  readonly #log: ((text: string) => void) | undefined;
  readonly #time = new VirtualTime();
  readonly #clock: VirtualClock;
  readonly #pool = new PoisoningPool();
  readonly #tap = new TapHub();
  readonly #host: RnicHost;
  readonly #programs: readonly MemoryProgram[];
  readonly #ends: LentEnd[] = [];
  readonly #breaks: boolean;
  readonly #interferes: boolean;
  #unwatch: (() => void) | undefined = undefined;
  #closeWindow: (() => void) | undefined = undefined;
  #steps = 0;

  constructor(prng: Prng, log: ((text: string) => void) | undefined) {
    this.#prng = prng;
    this.#log = log;
    this.#clock = new VirtualClock(this.#time, new Prng(prng.next()));
    const none = (): never => {
      throw new Error('nothing leaves the host');
    };
    const inner = new SimNetwork(this.#time, prng, { tcp: none, sctp: none }).host(ADDRESSES);
    const own = { has: (address: string) => ADDRESSES.includes(address), anyAcceptsIPv4: false };
    const mulpduBytes = prng.choose([300, 1000, 3000, 64_768]);
    this.#host = new RnicHost({
      system: { clock: this.#clock, network: new MemoryNetwork(inner, this.#clock, own) },
      pool: this.#pool,
      observer: { tap: this.#tap },
      ...(prng.oneIn(3) ? { turnShareBytes: prng.between(2000, 20_000) } : {}),
      devices: ADDRESSES.map((address, index) => ({
        name: `iwarp${index}`,
        addresses: [address],
        wire: {
          crcRequested: !prng.oneIn(4),
          markersRequested: prng.oneIn(16),
          fpduSize: { kind: 'fixed' as const, mulpduBytes },
          closeTimeoutMicros: 5_000_000,
        },
      })),
    });
    const processes = new Map();
    this.#programs = ADDRESSES.map((_, device) => {
      return new MemoryProgram(this.#host, device, this.#time, prng, { shares: false, processes });
    });
    this.#breaks = prng.oneIn(2);
    this.#interferes = prng.oneIn(2);
  }

  #note(text: string): void {
    this.#log?.(`${this.#time.now} ${text}`);
  }

  async run(): Promise<LentRunResult> {
    await this.#connect(this.#prng.between(1, 3));
    const operations = this.#prng.between(20, 120);
    for (let index = 0; index < operations; index += 1) {
      this.#operate();
      for (let steps = this.#prng.below(12); steps > 0; steps -= 1) await this.#step();
    }
    await this.#finish();
    await this.#leave();
    const completions = this.#ends.reduce((sum, { completed }) => sum + completed, 0);
    const failures = this.#ends.filter(({ failed }) => failed).length;
    return { completions, failures, trace: this.#time.now + this.#steps };
  }

  // Connections

  async #connect(count: number): Promise<void> {
    const { cm } = this.#host;
    const [first, second] = this.#programs as [MemoryProgram, MemoryProgram];
    const events: { readonly id: HostId; readonly type: CMEventType }[] = [];
    this.#host.onCmEvent = (id, { type }) => events.push({ id, type });
    const listener = cm.createId(undefined);
    const [from = '', to = ''] = ADDRESSES;
    cm.bindAddr(listener, { address: to, port: PORT });
    cm.listen(listener, 8);
    for (let pair = 0; pair < count; pair += 1) {
      const a = new LentEnd(this.#host, first, this.#prng);
      const b = new LentEnd(this.#host, second, this.#prng);
      a.peer = b;
      b.peer = a;
      const id = cm.createId(a);
      cm.resolveAddr(id, { address: to, port: PORT }, { address: from, port: 0 });
      cm.resolveRoute(id);
      this.#host.drain();
      cm.connect(id, a.qp, WISHES);
      this.#host.drain();
      for (let step = 0; !(a.up && b.up); step += 1) {
        must(step < STEPS_MAX, 'progress', 'no connection');
        await this.#step();
        for (const event of events.splice(0)) {
          if (event.type !== CMEventType.connectRequest) continue;
          event.id.tag = b;
          cm.accept(event.id, b.qp, WISHES);
        }
        this.#host.drain();
      }
      this.#ends.push(a, b);
    }
    this.#host.onCmEvent = ({ tag }, { type }) => {
      if (type === CMEventType.disconnected && tag instanceof LentEnd) tag.learnEnd();
    };
    this.#host.onAsync = (_device, { object }) => {
      this.#ends.find(({ qp }) => qp === object)?.learnEnd();
    };
  }

  // Steps

  #operate(): void {
    const prng = this.#prng;
    const end = prng.choose(this.#ends);
    for (let count = prng.below(9); count > 0; count -= 1) end.post();
    end.ring();
    // Mostly while output is on its way.
    if (this.#breaks && prng.oneIn(25)) this.#break(prng.oneIn(2) ? end : end.peer);
    else if (this.#interferes && prng.oneIn(4)) this.#interfere(end.peer);
    if (prng.oneIn(2)) prng.choose(this.#ends).poll();
  }

  #break(end: LentEnd): void {
    const { program } = end;
    const what = this.#prng.choose(BREAKS);
    this.#note(`${what} at device ${program.index}`);
    switch (what) {
      case 'die':
        for (const each of this.#ends) if (each.program === program) each.mayFail('it has died');
        for (const region of program.regions) region.lost = true;
        program.memory.die();
        return;
      case 'reset':
        end.mayFail('its connection was reset');
        this.#host.faults.add({ kind: 'reset', afterBytes: 0, once: true }, undefined);
        for (const each of this.#ends) each.mayFail('a connection was reset');
        return;
      case 'error':
      case 'destroy':
        end.giveUp(what === 'destroy');
        return;
      default: {
        const region = what === 'target' ? end.targets : end.sources;
        if (region.lost) return;
        end.mayFail('its memory went away');
        region.lost = true;
        if (what === 'unmap') program.memory.free(region.area);
        else {
          region.close();
          this.#host.drain();
          end.reuse(region);
        }
      }
    }
  }

  #interfere({ program }: LentEnd): void {
    const prng = this.#prng;
    const what = prng.choose(INTERFERENCES);
    this.#note(what);
    if (what === 'tap') {
      if (this.#unwatch === undefined) this.#unwatch = this.#tap.watch(WATCHER);
      else {
        this.#unwatch();
        this.#unwatch = undefined;
      }
    } else if (what === 'window') {
      if (this.#closeWindow === undefined) {
        const window = program.device.nic.allocMW(program.pd, MWType.type1);
        this.#closeWindow = () => window.close();
      } else {
        this.#closeWindow();
        this.#closeWindow = undefined;
      }
    } else if (what === 'fault') this.#host.faults.add(this.#fault(), undefined);
    else this.#host.faults.clear();
  }

  /** A fault that must not make anything fail. */
  #fault(): FaultSpec {
    const prng = this.#prng;
    const trigger = { probability: 0.3, seed: prng.next() };
    switch (prng.below(3)) {
      case 0:
        return { kind: 'delay', ms: prng.between(1, 20), ...trigger };
      case 1:
        return { kind: 'slice', bytes: prng.between(1, 900) };
      default:
        return { kind: 'stall', ms: prng.between(1, 100), ...trigger };
    }
  }

  async #step(): Promise<void> {
    this.#time.step();
    this.#steps += 1;
    // The daemon defers some housekeeping to the end of a turn.
    await undefined;
    const deep = this.#steps % DEEP_CHECK_EVERY === 0;
    for (const end of this.#ends) end.checkMemory(deep);
    if (deep && this.#clock.turns === 0) this.#host.assertDeepInvariants();
  }

  // The end

  async #finish(): Promise<void> {
    for (let step = 0; !this.#ends.every((end) => end.idle); step += 1) {
      const open = this.#ends.filter(({ idle }) => !idle).map((end) => end.unfinished);
      must(step < STEPS_MAX, 'progress', `still outstanding: ${open.join(', ')}`);
      if (step === STEPS_MAX / 4) this.#host.faults.clear();
      for (const end of this.#ends) {
        end.postSignal();
        end.poll();
      }
      await this.#step();
    }
    this.#host.faults.clear();
    await this.#linger();
    for (const end of this.#ends) end.poll();
    for (const end of this.#ends) end.finish();
  }

  async #linger(): Promise<void> {
    const end = this.#time.now + LINGER_MICROS;
    for (let step = 0; step < STEPS_MAX; step += 1) {
      if (!this.#time.busy && (this.#time.nextDue ?? end) >= end) return;
      await this.#step();
    }
    must(false, 'progress', 'the host does not become idle');
  }

  /** Everything is destroyed: no leaks. */
  async #leave(): Promise<void> {
    for (const end of this.#ends) end.close();
    await this.#linger();
    this.#closeWindow?.();
    for (const program of this.#programs) {
      for (const region of program.regions) region.checkReused();
      for (const region of program.regions) region.close();
      program.pd.close();
      this.#host.drain();
      const { device } = program;
      for (const [kind, count] of Object.entries(device.nic.liveCounts())) {
        must(count === 0, 'left', `${count} ${kind} of device ${program.index}`);
      }
      must(program.memory.copies?.count === 0, 'left', 'copies');
    }
    const closing = this.#host.close();
    await this.#linger();
    await closing;
    must(this.#pool.inUseCount === 0, 'left', `${this.#pool.inUseCount} chunks`);
    for (const [what, count] of Object.entries(this.#host.heldCounts())) {
      must(count === 0, 'left', `${count} ${what}`);
    }
  }
}
