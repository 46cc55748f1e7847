/** Datagrams within a host: whole, in order, and lost if there is no room. */
import { describe, expect, it } from 'vitest';
import { gidBytes } from '#daemon/host/host-addresses';
import { type Mailbox, MemoryDatagrams } from '#daemon/host/sctp/memory-datagrams';
import { Prng } from '#test/support/prng';

const ONE = '10.9.9.1';
const OTHER = '10.9.9.2';

/** A network whose turns the test runs. */
function newNetwork() {
  const turns: (() => void)[] = [];
  const clock = {
    now: () => 0,
    recent: () => 0,
    after: () => ({ cancel: () => undefined }),
    soon: (run: () => void) => void turns.push(run),
    random32: () => 0,
  };
  return { network: new MemoryDatagrams(clock), turns };
}

const SAMPLE = Uint8Array.from(
  { length: 66_000 },
  (_, index) => (index * 31 + (index >> 8)) & 0xff,
);

function datagram(length: number, seed: number): Uint8Array {
  return SAMPLE.subarray(seed % 256, (seed % 256) + length);
}

/** The next datagram; undefined if none waits. */
function take(box: Mailbox) {
  const bytes = new Uint8Array(66_000);
  const sender = { peer: new Uint8Array(16), peerPort: 0 };
  const length = box.take(bytes, 8, sender);
  return length < 0 ? undefined : { bytes: bytes.slice(8, 8 + length), ...sender };
}

describe('datagrams in memory', () => {
  it('arrive in a later turn, with their sender', () => {
    const { network, turns } = newNetwork();
    let arrivals = 0;
    const from = network.open(ONE, 9899, () => undefined);
    const to = network.open(OTHER, 9899, () => (arrivals += 1));
    expect(network.find(gidBytes(OTHER), 9899)).toBe(to);
    expect(to.post(from, datagram(40, 1), 10, 30)).toBe(true);
    expect(to.post(from, datagram(5, 2), 0, 5)).toBe(true);
    expect(arrivals).toBe(0);
    for (const turn of turns.splice(0)) turn();
    expect(arrivals).toBe(1);
    expect(take(to)).toEqual({
      bytes: datagram(40, 1).subarray(10),
      peer: gidBytes(ONE),
      peerPort: 9899,
    });
    expect(take(to)?.bytes).toEqual(datagram(5, 2));
    expect(take(to)).toBeUndefined();
  });

  it('share their room in any order of sizes', () => {
    const { network } = newNetwork();
    const from = network.open(ONE, 1, () => undefined);
    const to = network.open(OTHER, 2, () => undefined);
    const prng = new Prng(7);
    const expected: Uint8Array[] = [];
    let lost = 0;
    for (let step = 0; step < 3000; step += 1) {
      // Alternates between more input than reads, and the reverse.
      if (prng.below(100) < (Math.floor(step / 500) % 2 === 0 ? 80 : 20)) {
        const bytes = datagram(1 + prng.below(65_000), step);
        if (to.post(from, bytes, 0, bytes.length)) expected.push(bytes);
        else lost += 1;
      } else {
        const wanted = expected.shift();
        const got = take(to)?.bytes;
        expect(got?.length).toBe(wanted?.length);
        if (wanted !== undefined) expect(Buffer.compare(got ?? wanted, wanted)).toBe(0);
      }
    }
    expect(lost).toBeGreaterThan(0);
    for (const wanted of expected)
      expect(Buffer.compare(take(to)?.bytes ?? SAMPLE, wanted)).toBe(0);
    expect(take(to)).toBeUndefined();
  });

  it('have no receiver at a closed port, and at most one at others', () => {
    const { network, turns } = newNetwork();
    const from = network.open(ONE, 1, () => undefined);
    const to = network.open(OTHER, 2, () => expect.unreachable());
    expect(() => network.open(OTHER, 2, () => undefined)).toThrow(
      expect.objectContaining({ code: 'EADDRINUSE' }),
    );
    to.post(from, datagram(8, 0), 0, 8);
    to.close();
    for (const turn of turns.splice(0)) turn();
    expect(to.post(from, datagram(8, 0), 0, 8)).toBe(false);
    expect(network.find(gidBytes(OTHER), 2)).toBeUndefined();
    expect(network.open(OTHER, 2, () => undefined)).not.toBe(to);
  });
});
