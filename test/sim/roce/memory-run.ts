/**
 * Programs on RoCE devices of one host whose memory is slow, or disappears, under one seed.
 *
 * Host, queue pairs, transports and backings are the daemon's; the programs, their memory below the
 * backings, and the time are simulated. Injected faults lose, repeat, delay and reorder packets.
 */
import type { FaultSpec } from '#contract/protocol/faults';
import { QPState } from '#contract/verbs/enums';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import { Prng } from '#test/support/prng';
import { VirtualClock, VirtualTime } from '#test/support/virtual-time';
import { MemoryEnd } from './memory-end.ts';
import { MemoryProgram } from './memory-program.ts';
import { must } from './rules.ts';

const STEPS_MAX = 60_000;
/** No answer for so long means that the two wait for each other. */
const MICROS_MAX = 600_000_000;
/** Steps after which programs close a connection that need not finish. */
const PATIENCE_STEPS = 4000;
/** Time in which late copies of packets, and answers of an agent, still arrive. */
const LINGER_MICROS = 2_000_000;
/** Steps between two checks of all counts. */
const DEEP_CHECK_EVERY = 16;
const RETRIES = 7;
/** 4 us * 2^17, half a second: longer than any agent here takes. */
const LONG_TIMEOUT = 17;
/** 17 ms, which slow memory may exceed. */
const SHORT_TIMEOUT = 12;
/** Bytes that may be in flight for one queue pair: a message each way, and held ones. */
const STAGED_BYTES_PER_QP = 262_144;
const REQUESTS_PER_QP = 4096;
const ALARMS_PER_HOST = 4;
/** Failures of programs; those of programs whose agents copy mostly come in the middle of a copy. */
const BREAKS = ['unmap', 'unmap', 'deregister', 'die', 'give up'] as const;
const DIRECT_BREAKS = [
  'unmap',
  'deregister',
  'deregister',
  'deregister',
  'die',
  'give up',
] as const;
/** Makes another generator of a run's seed. */
const DIRECT_SALT = 77_777;

/** Counts of a run, which reveal an idle one. */
interface MemoryRunResult {
  readonly completions: number;
  /** Queue pairs that failed with their memory, or were moved to ERR. */
  readonly failures: number;
  readonly trace: number;
}

/** Runs one seed. Throws `BrokenRoceRule`, or the model's error. */
export async function runMemory(
  seed: number,
  log?: (text: string) => void,
): Promise<MemoryRunResult> {
  // Not drawn from the run's own generator: other runs stay as they were.
  const direct = new Prng(seed + DIRECT_SALT).oneIn(3);
  return new Run(new Prng(seed), direct, log).run();
}

class Run {
  readonly #prng: Prng;
  readonly #log: ((text: string) => void) | undefined;
  readonly #time = new VirtualTime();
  readonly #clock: VirtualClock;
  readonly #host: RnicHost;
  readonly #programs: readonly MemoryProgram[];
  readonly #ends: MemoryEnd[] = [];
  readonly #breaks: boolean;
  /** Agents copy straight into memory of the other program. */
  readonly #direct: boolean;
  /** Devices that accept no more receives for now. */
  #steps = 0;

  constructor(prng: Prng, direct: boolean, log: ((text: string) => void) | undefined) {
    this.#prng = prng;
    this.#log = log;
    this.#clock = new VirtualClock(this.#time, new Prng(prng.next()));
    const network = {
      hold: () => {
        throw new Error('no TCP here');
      },
      sourceAddress: () => '127.0.0.1',
    };
    this.#host = new RnicHost({
      system: { clock: this.#clock, network },
      roce: ROCE_NETWORK,
      devices: [0, 1].map((index) => ({
        name: `roce${index}`,
        addresses: [`127.0.0.${2 + index}`],
        transport: 'roce' as const,
      })),
    });
    const processes = direct ? new Map() : undefined;
    this.#programs = [0, 1].map((device) => {
      const options = { shares: prng.oneIn(2), processes };
      return new MemoryProgram(this.#host, device, this.#time, prng, options);
    });
    this.#direct = direct;
    this.#breaks = prng.oneIn(2);
    const pairs = prng.between(1, 3);
    for (let pair = 0; pair < pairs; pair += 1) this.#connect();
    this.#addFaults();
  }

  #connect(): void {
    const prng = this.#prng;
    const [first, second] = this.#programs as [MemoryProgram, MemoryProgram];
    const a = new MemoryEnd(this.#host, first, prng);
    const b = new MemoryEnd(this.#host, second, prng);
    const maxRdAtomic = prng.choose([1, 2, 8]);
    const impatient = prng.oneIn(6);
    const common = {
      pathMtu: prng.between(1, 5),
      timeout: impatient ? SHORT_TIMEOUT : LONG_TIMEOUT,
      retryCnt: RETRIES,
      rnrRetry: 7,
      maxRdAtomic,
      maxDestRdAtomic: maxRdAtomic,
      minRnrTimer: prng.between(1, 14),
    } satisfies Partial<QPModification>;
    const [psnA, psnB] = [prng.below(2 ** 24), 0xff_ffff - prng.below(40)];
    a.connect(b, { ...common, sqPsn: psnA, rqPsn: psnB });
    b.connect(a, { ...common, sqPsn: psnB, rqPsn: psnA });
    if (impatient) a.mayFail('its timeout is shorter than its memory is slow');
    this.#ends.push(a, b);
  }

  #addFaults(): void {
    const prng = this.#prng;
    const chances = (
      kind: FaultSpec['kind'],
      oneIn: number,
      more: Partial<FaultSpec> = {},
    ): void => {
      if (!prng.oneIn(4)) return;
      const spec = { kind, probability: 1 / oneIn, seed: prng.next(), ...more };
      this.#note(`fault ${JSON.stringify(spec)}`);
      this.#host.faults.add(spec, undefined);
    };
    if (prng.oneIn(2)) return;
    chances('drop', 30);
    chances('corrupt-icrc', 60);
    chances('duplicate', 10);
    chances('reorder', 20);
    chances('delay', 10, { ms: prng.between(1, 20) });
    chances('rnr', 20);
    chances('nak', 30, { syndrome: 'psn-sequence' });
  }

  #note(text: string): void {
    this.#log?.(`${this.#time.now} ${text}`);
  }

  async run(): Promise<MemoryRunResult> {
    const operations = this.#prng.between(20, 120);
    for (let index = 0; index < operations; index += 1) {
      this.#operate();
      for (let steps = this.#prng.below(8); steps > 0; steps -= 1) await this.#step();
    }
    await this.#finish();
    this.#leave();
    await this.#linger();
    await this.#host.close();
    must(this.#clock.alarms === 0, 'left', `${this.#clock.alarms} alarms`);
    const completions = this.#ends.reduce((sum, { completed }) => sum + completed, 0);
    const failures = this.#ends.filter(({ failed }) => failed).length;
    return { completions, failures, trace: this.#time.now + this.#steps };
  }

  // Steps

  #operate(): void {
    const prng = this.#prng;
    const end = prng.choose(this.#ends);
    if (this.#breaks && prng.oneIn(this.#direct ? 20 : 60)) this.#break(end);
    else if (prng.oneIn(3)) end.postReceives(prng.between(1, 4));
    else {
      end.ringsLate = this.#direct;
      for (let count = prng.between(1, 4); count > 0; count -= 1) end.post();
      if (end.ringsLate) end.ring();
    }
    if (prng.oneIn(2)) prng.choose(this.#ends).poll();
  }

  #break(end: MemoryEnd): void {
    const { program } = end;
    const prng = this.#prng;
    // Mostly one that others copy into.
    const region = this.#direct && prng.oneIn(2) ? end.targets : prng.choose(program.regions);
    const what = prng.choose(this.#direct ? DIRECT_BREAKS : BREAKS);
    this.#note(`${what} at device ${program.index}`);
    if (what === 'die') {
      for (const one of program.ends) one.mayFail('its program has died');
      for (const one of program.regions) one.lost = true;
      program.memory.die();
      return;
    }
    if (what === 'give up') {
      end.mayFail('its program gave it up');
      end.giveUp();
      return;
    }
    if (region.lost) return;
    for (const user of region.users) user.mayFail('its memory went away');
    region.lost = true;
    if (what === 'unmap') program.memory.free(region.area);
    else {
      region.close();
      this.#host.drain();
      // Agents that the daemon asks refuse later writes, which is not simulated. The final checks still read the words.
      if (!this.#direct || this.#ends.some(({ words }) => words === region)) return;
      const { incoming } = program.memory;
      if (incoming.ending) incoming.whenOver(() => region.reuse());
      else region.reuse();
    }
  }

  async #step(): Promise<void> {
    this.#time.step();
    this.#steps += 1;
    // Memory used up in a turn is dropped after that turn.
    await undefined;
    if (this.#direct) for (const end of this.#ends) end.checkOrder();
    if (this.#steps % DEEP_CHECK_EVERY === 0 && this.#clock.turns === 0) this.#check();
  }

  /** Counts agree, and nothing grows without bound. */
  #check(): void {
    this.#host.assertDeepInvariants();
    const qps = this.#ends.length;
    for (const { memory } of this.#programs) {
      const { pendingRequests, stagedBytes } = memory;
      must(stagedBytes <= qps * STAGED_BYTES_PER_QP, 'bounded', `${stagedBytes} bytes are fetched`);
      must(
        pendingRequests <= qps * REQUESTS_PER_QP,
        'bounded',
        `an agent has ${pendingRequests} requests pending`,
      );
    }
    const { alarms } = this.#clock;
    must(alarms <= ALARMS_PER_HOST, 'bounded', `${alarms} alarms`);
  }

  // The end

  /** Waits until all that can complete has completed; programs keep posting receives. */
  async #finish(): Promise<void> {
    const start = this.#time.now;
    this.#abandon();
    for (let step = 0; !this.#ends.every(({ idle }) => idle); step += 1) {
      const outstanding = this.#ends.filter(({ idle }) => !idle).map((end) => end.unfinished);
      const stuck = step >= STEPS_MAX || this.#time.now - start > MICROS_MAX;
      must(!stuck, 'progress', `still outstanding: ${outstanding.join(', ')}`);
      for (const end of this.#ends) {
        end.postSignal();
        if (step % 8 === 0) end.postReceives(2);
        end.poll();
        if (step > PATIENCE_STEPS && end.excuse !== undefined) end.giveUp();
      }
      this.#abandon();
      await this.#step();
    }
    await this.#linger();
    // Receives of queue pairs in error are flushed, too.
    for (const end of this.#ends) if (end.excuse !== undefined) end.giveUp();
    await this.#linger();
    for (const end of this.#ends) end.poll();
    for (const end of this.#ends) end.finish();
    for (const program of this.#programs) program.checkShared();
  }

  /** A program whose work failed gives the connection up, and so does its peer. */
  #abandon(): void {
    for (const end of this.#ends) {
      if (!end.failed && end.state !== QPState.ERR) continue;
      must(end.excuse !== undefined, 'fails', `QP ${end.qp.qpn} is in error`);
      end.giveUp();
      end.peer.giveUp();
    }
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
  #leave(): void {
    for (const end of this.#ends) end.close();
    this.#host.faults.clear();
    for (const program of this.#programs) {
      for (const region of program.regions) region.checkReused();
      for (const region of program.regions) region.close();
      program.shared?.srq.close();
      program.pd.close();
      this.#host.drain();
      for (const [kind, count] of Object.entries(program.device.nic.liveCounts())) {
        must(count === 0, 'left', `${count} ${kind} of device ${program.index}`);
      }
      must(program.memory.opened === 0, 'left', `${program.memory.opened} regions of a program`);
      must(program.memory.stagedBytes === 0, 'left', 'bytes that were fetched');
    }
    for (const [what, count] of Object.entries(this.#host.heldCounts())) {
      must(count === 0, 'left', `${count} ${what}`);
    }
  }
}
