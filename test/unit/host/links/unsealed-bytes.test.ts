/** CRCs within one host: computed only if a capture or fault needs them, and then correct. */
import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { WCStatus, WROpcode } from '#contract/verbs/enums';
import { TapHub, type TapWatcher } from '#daemon/capture/tap-hub';
import { hostSystem } from '#daemon/host/links/system';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { RecordingSink, receiverOf } from '#test/support/fpdu-stream';
import { type ConnectedPair, connectPair, RnicNode } from '#test/support/rnic-node';

/** Several FPDUs, the last of which is small. */
const LENGTH = 200_001;

let crcs = 0;
let hosts: RnicNode[] = [];

afterEach(async () => {
  for (const { host } of hosts) await host.close();
  hosts = [];
});

/** A host that counts the CRCs of large FPDUs. */
function node(tap?: TapHub, loopback: 'memory' | 'tcp' = 'memory'): RnicNode {
  crcs = 0;
  const counting: typeof crc32c = (bytes, initial) => {
    crcs += 1;
    return crc32c(bytes, initial);
  };
  const made = new RnicNode({
    system: hostSystem(loopback),
    crcEngine: { name: 'counting', accelerated: false, crc32c: counting },
    observer: tap === undefined ? {} : { tap },
  });
  hosts.push(made);
  return made;
}

function postWrite({ active, passive }: ConnectedPair): void {
  active.postSend({
    opcode: WROpcode.rdmaWrite,
    sgList: [{ addr: active.address(), length: LENGTH, lkey: active.mr.lkey }],
    remoteAddr: passive.address(),
    rkey: passive.mr.rkey,
  });
}

/** One large Write, then a Send; both arrive whole. */
async function exchange(pair: ConnectedPair, seed: number): Promise<void> {
  const { active, passive } = pair;
  for (let at = 0; at < LENGTH; at += 1) active.buffer[at] = (at * seed) & 0xff;
  passive.receive(LENGTH, 64);
  postWrite(pair);
  active.send(0, 64);
  const [received] = await passive.completions(1);
  expect(received).toMatchObject({ status: WCStatus.success, byteLen: 64 });
  expect(
    Buffer.compare(active.buffer.subarray(0, LENGTH), passive.buffer.subarray(0, LENGTH)),
  ).toBe(0);
  await active.completions(2);
}

/** Checks the CRC of everything that it sees of FPDUs. */
class Checker implements TapWatcher {
  readonly sinks = { us: new RecordingSink(), peer: new RecordingSink() };
  readonly #receivers = { us: receiverOf(), peer: receiverOf() };
  readonly errors: unknown[] = [];
  /** Startup frames of both ends precede it. */
  #startupFrames = 2;

  wants(): boolean {
    return true;
  }
  bytes(_link: number, by: 'us' | 'peer', bytes: Uint8Array): void {
    if (this.#startupFrames > 0) {
      this.#startupFrames -= 1;
      return;
    }
    const error = this.#receivers[by].push(bytes, 0, bytes.length, this.sinks[by]);
    if (error !== undefined) this.errors.push(error);
  }
  opened(): void {}
  joined(): void {}
  finished(): void {}
  closed(): void {}
  skipped(): void {}
}

it.each(['memory', 'tcp'] as const)('by %s', async (loopback) => {
  const host = node(undefined, loopback);
  await exchange(await connectPair(host, host), 31);
  if (loopback === 'memory') expect(crcs).toBe(0);
  else expect(crcs).toBeGreaterThan(0);
});

it('a watcher that attaches and detaches sees good CRCs, even of bytes in flight', async () => {
  const tap = new TapHub();
  const host = node(tap);
  // The watched end is the one that listened: its peer sends, and then it does.
  const there = await connectPair(host, host);
  const back: ConnectedPair = { ...there, active: there.passive, passive: there.active };
  await exchange(there, 7);
  expect(crcs).toBe(0);
  for (const pair of [there, back]) {
    postWrite(pair);
    const checker = new Checker();
    const unwatch = tap.watch(checker);
    await pair.active.completions(1);
    await exchange(pair, 11);
    const { us, peer } = checker.sinks;
    expect(checker.errors).toEqual([]);
    expect((pair === there ? peer : us).ulpdus.length).toBeGreaterThan(4);
    unwatch();
  }
  crcs = 0;
  await exchange(there, 13);
  expect(crcs).toBe(0);
});

it.each(['out', 'in'] as const)('bytes that a fault holds back going %s have CRCs', async (way) => {
  const host = node();
  const pair = await connectPair(host, host);
  await exchange(pair, 3);
  postWrite(pair);
  const spec: FaultSpec = { kind: 'slice', bytes: 4001, direction: way };
  const fault = host.host.faults.add(spec, undefined);
  await pair.active.completions(1);
  await exchange(pair, 5);
  expect(fault.status.fired).toBeGreaterThan(0);
  expect(crcs).toBeGreaterThan(0);
  host.host.faults.remove(fault.id);
  await exchange(pair, 9);
  crcs = 0;
  await exchange(pair, 17);
  expect(crcs).toBe(0);
});

it('a watcher that attaches while a fault slices sent bytes sees whole FPDUs', async () => {
  const tap = new TapHub();
  const host = node(tap);
  const there = await connectPair(host, host);
  const pair: ConnectedPair = { ...there, active: there.passive, passive: there.active };
  host.host.faults.add({ kind: 'slice', bytes: 4001, direction: 'out' }, undefined);
  for (let turns = 0; turns < 12; turns += 1) {
    postWrite(pair);
    for (let turn = 0; turn < turns; turn += 1) await setImmediate();
    const checker = new Checker();
    const unwatch = tap.watch(checker);
    await pair.active.completions(1);
    await exchange(pair, 21);
    expect(checker.errors, `after ${turns} turns`).toEqual([]);
    expect(checker.sinks.us.ulpdus.length).toBeGreaterThan(3);
    unwatch();
  }
});

it.each(['corrupt-crc', 'corrupt-length'] as const)(
  '%s within the host is found by the CRC [MPA-4.4-16]',
  async (kind) => {
    const host = node();
    const pair = await connectPair(host, host);
    await exchange(pair, 3);
    host.host.faults.add({ kind, opcode: 'write', once: true }, undefined);
    postWrite(pair);
    await host.event(pair.activeId);
    const texts = host.asyncEvents.map(({ text }) => text).join();
    expect(texts).toMatch(/\(layer 2, type 0, code 2\)/);
  },
);
