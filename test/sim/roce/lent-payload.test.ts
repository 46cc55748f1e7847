/**
 * Payload that is lent to the receiver's memory, and cannot be read when its copy is due: two programs on
 * devices of one host, at many moments.
 */
import { expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState } from '#contract/verbs/enums';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { Prng } from '#test/support/prng';
import { VALUES } from '#test/support/program-steps';
import { VirtualClock, VirtualTime } from '#test/support/virtual-time';
import type { SimProcesses } from '../sim-copies.ts';
import { MemoryEnd } from './memory-end.ts';
import { MemoryProgram, type Region } from './memory-program.ts';

const SEEDS = 60;
const LONG = 2000;
const PLACE = 4096;
const STEPS = 4000;
const PATH = {
  pathMtu: 3,
  timeout: 17,
  retryCnt: 7,
  rnrRetry: 7,
  maxRdAtomic: 4,
  maxDestRdAtomic: 4,
  minRnrTimer: 3,
};

/** Two programs on a host, whose agents copy. */
class World {
  readonly #prng: Prng;
  readonly #time = new VirtualTime();
  readonly host: RnicHost;
  /** A capture. */
  readonly tap = { watched: false, packet: () => undefined };
  readonly #programs: readonly MemoryProgram[];

  /** `devices`: of each program. */
  constructor(seed: number, devices: readonly number[] = [0, 1]) {
    this.#prng = new Prng(seed);
    const clock = new VirtualClock(this.#time, new Prng(this.#prng.next()));
    const hold = (): never => {
      throw new Error('RoCE devices use no ports');
    };
    this.host = new RnicHost({
      system: { clock, network: { hold, sourceAddress: () => '127.0.0.1' } },
      roce: ROCE_NETWORK,
      observer: {
        tap: {
          packets: this.tap,
          opened: () => {
            throw new Error('no link');
          },
        },
      },
      devices: [2, 3].map((last) => ({
        name: `roce${last}`,
        addresses: [`127.0.0.${last}`],
        transport: 'roce',
      })),
    });
    const processes: SimProcesses = new Map();
    this.#programs = devices.map((index) => {
      const options = { shares: false, processes };
      return new MemoryProgram(this.host, index, this.#time, this.#prng, options);
    });
  }

  /** A connection between the programs, the sender's end first. */
  pair(path: object = PATH): [MemoryEnd, MemoryEnd] {
    const [left, right] = this.#programs.map((each) => new MemoryEnd(this.host, each, this.#prng));
    if (left === undefined || right === undefined) throw new Error('two programs');
    left.connect(right, { ...PATH, ...path, sqPsn: 100, rqPsn: 200 });
    right.connect(left, { ...PATH, ...path, sqPsn: 200, rqPsn: 100 });
    return [left, right];
  }

  async steps(count: number): Promise<void> {
    for (let step = 0; step < count; step += 1) {
      this.#time.step();
      await undefined;
    }
  }

  /** The program deregisters it. */
  drop(region: Region): void {
    region.close();
    this.host.drain();
  }
}

/** Posts a Write of the first bytes of `source`, without a doorbell. */
function write(
  { sends }: MemoryEnd,
  wrId: number,
  source: Region,
  length: number,
  target: Region,
  offset: number,
): void {
  const sges = [{ addr: source.area.address, length, lkey: source.mr.lkey }];
  const at = { raddr: BigInt(target.area.address + offset), rkey: target.mr.rkey };
  sends.post({ opcode: SQOpcode.write, wrId, flags: QueueFlag.signalled, sges, ...at });
}

/** Two regions of the sender. */
function sources({ program }: MemoryEnd): readonly [good: Region, bad: Region] {
  return [program.register('process_vm'), program.register('process_vm')];
}

/** A short Write, which is not lent, and two that are: the second from `bad`. */
function writeThree(sender: MemoryEnd, good: Region, bad: Region, targets: Region): void {
  write(sender, 0, good, 8, targets, 0);
  write(sender, 1, good, LONG, targets, PLACE);
  write(sender, 2, bad, LONG, targets, 2 * PLACE);
}

function send({ sends }: MemoryEnd, wrId: number, source: Region): void {
  const sges = [{ addr: source.area.address, length: LONG, lkey: source.mr.lkey }];
  sends.post({ opcode: SQOpcode.send, wrId, flags: QueueFlag.signalled, sges });
}

function taken({ completions }: MemoryEnd): [number, CQEStatus][] {
  return completions.poll().map(({ wrId, status }) => [wrId, status as CQEStatus]);
}

const seeds = Array.from({ length: SEEDS }, (_, index) => index + 1);

it('fails the work request that named it, after the ones before have succeeded', async () => {
  for (const seed of seeds) {
    const world = new World(seed);
    const [sender, receiver] = world.pair();
    const [good, bad] = sources(sender);
    const { targets } = receiver;
    writeThree(sender, good, bad, targets);
    sender.ring();
    await world.steps(seed % 5);
    world.drop(bad);
    await world.steps(STEPS);
    expect(taken(sender), `seed ${seed}`).toEqual([
      [0, CQEStatus.success],
      [1, CQEStatus.success],
      [2, CQEStatus.locProtErr],
    ]);
    expect(receiver.state).toBe(QPState.RTS);
  }
});

it('keeps no deferred reads, which would change what other queue pairs of the program send', async () => {
  for (const seed of seeds) {
    const world = new World(seed);
    const [sender, receiver] = world.pair();
    const [other, peer] = world.pair();
    const [good, bad] = sources(sender);
    good.area.bytes.fill(0xaa);
    const sent = other.program.register('process_vm');
    sent.area.bytes.fill(0xbb);
    peer.targets.area.bytes.fill(0);
    write(sender, 0, good, 8, receiver.targets, 0);
    for (const wrId of [1, 2]) write(sender, wrId, bad, LONG, receiver.targets, wrId * PLACE);
    for (let wrId = 3; wrId < 9; wrId += 1)
      write(sender, wrId, good, 200, receiver.targets, 3 * PLACE);
    sender.ring();
    await world.steps(seed % 4);
    world.drop(bad);
    for (let round = 0; round < 40; round += 1) {
      await world.steps(1 + (seed % 5));
      for (let place = 0; round % 4 === 0 && place < 6; place += 1) {
        write(other, 0, sent, 120, peer.targets, 256 * place);
      }
      other.ring();
      for (const [, status] of taken(other)) expect(status).toBe(CQEStatus.success);
    }
    await world.steps(STEPS);
    expect(other.state, `seed ${seed}`).toBe(QPState.RTS);
    expect(peer.targets.area.bytes.subarray(0, 1536)).not.toContain(0xaa);
  }
});

it('does not delay completions of what the receiver itself has sent', async () => {
  for (const seed of seeds) {
    const world = new World(seed);
    const [sender, receiver] = world.pair();
    const bad = sender.program.register('process_vm');
    const own = receiver.program.register('process_vm');
    write(sender, 0, bad, 8, receiver.targets, 0);
    for (let wrId = 1; wrId < 6; wrId += 1)
      write(sender, wrId, bad, LONG, receiver.targets, wrId * PLACE);
    sender.ring();
    await world.steps(1);
    write(receiver, 50, own, 8, sender.targets, 0);
    receiver.ring();
    await world.steps(8 + (seed % 4));
    world.drop(bad);
    await world.steps(STEPS);
    expect(taken(receiver), `seed ${seed}`).toEqual([[50, CQEStatus.success]]);
  }
});

it('ends a queue pair in order whose completion queue is full', async () => {
  for (const seed of seeds) {
    const world = new World(seed);
    const [sender, receiver] = world.pair();
    const [good, bad] = sources(sender);
    const own = receiver.program.register('process_vm');
    // Up to a few entries.
    for (let wrId = 0; wrId < 60 + (seed % 5); wrId += 1) {
      write(receiver, wrId, own, 8, sender.targets, 0);
      receiver.ring();
      await world.steps(20);
    }
    receiver.postReceives(8);
    write(sender, 0, good, 8, receiver.targets, 0);
    for (let wrId = 1; wrId < 4; wrId += 1) send(sender, wrId, good);
    for (let wrId = 4; wrId < 7; wrId += 1) send(sender, wrId, bad);
    sender.ring();
    await world.steps(seed % 7);
    world.drop(bad);
    await world.steps(STEPS);
    const error = { ...VALUES, curState: receiver.state, state: QPState.ERR, mask: 1 };
    receiver.qp.modifyPath(error, world.host.now());
    world.host.drain();
    world.host.assertDeepInvariants();
  }
});

it('fails the work request although a capture has begun meanwhile', async () => {
  const stuck: number[] = [];
  for (const seed of seeds) {
    const world = new World(seed);
    const [sender, receiver] = world.pair({ timeout: 0 });
    const [good, bad] = sources(sender);
    const { targets } = receiver;
    writeThree(sender, good, bad, targets);
    sender.ring();
    await world.steps(seed % 5);
    world.drop(bad);
    world.tap.watched = true;
    await world.steps(STEPS);
    const got = taken(sender);
    if (got.length !== 3) stuck.push(seed);
  }
  expect(stuck).toEqual([]);
});

const GOOD = 0xaa;
const BAD = 0xbb;
const PLACES = [
  ['two devices', [0, 1]],
  ['one device', [0, 0]],
] as const;

for (const [name, devices] of PLACES) {
  for (const length of [8, LONG]) {
    it(`places no Write of ${length} bytes after one that could not be read: ${name}`, async () => {
      const wrong: number[] = [];
      for (const seed of seeds) {
        const world = new World(seed, devices);
        const [sender, receiver] = world.pair();
        const [good, bad] = sources(sender);
        good.area.bytes.fill(GOOD);
        bad.area.bytes.fill(BAD);
        const { targets } = receiver;
        targets.area.bytes.fill(0);
        writeThree(sender, good, bad, targets);
        write(sender, 3, good, length, targets, 3 * PLACE);
        sender.ring();
        await world.steps(seed % 5);
        world.drop(bad);
        await world.steps(STEPS);
        const { bytes } = targets.area;
        if (bytes[2 * PLACE] !== BAD && bytes[3 * PLACE] === GOOD) wrong.push(seed);
      }
      expect(wrong).toEqual([]);
    });
  }
}

for (const [name, devices] of PLACES) {
  for (const timeout of [0, 17]) {
    it(`fails the work request although a Read follows: ${name}, timeout ${timeout}`, async () => {
      const wrong: string[] = [];
      for (const seed of seeds) {
        const world = new World(seed, devices);
        const [sender, receiver] = world.pair({ timeout });
        const [good, bad, sink] = [
          sender.program.register('process_vm'),
          sender.program.register('process_vm'),
          sender.program.register('process_vm'),
        ];
        const { targets } = receiver;
        writeThree(sender, good, bad, targets);
        const sges = [{ addr: sink.area.address, length: 64, lkey: sink.mr.lkey }];
        const at = { raddr: BigInt(targets.area.address), rkey: targets.mr.rkey };
        sender.sends.post({
          opcode: SQOpcode.read,
          wrId: 3,
          flags: QueueFlag.signalled,
          sges,
          ...at,
        });
        sender.ring();
        await world.steps(seed % 5);
        world.drop(bad);
        await world.steps(STEPS);
        const got = taken(sender)
          .map(([id, status]) => `${id}:${status}`)
          .join(' ');
        if (got !== `0:0 1:0 2:${CQEStatus.locProtErr} 3:${CQEStatus.wrFlushErr}`)
          wrong.push(`${seed}: ${got}`);
      }
      expect(wrong).toEqual([]);
    });
  }
}
