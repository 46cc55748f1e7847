import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CommandPace, CommandShares } from '#daemon/clients/command-pace';

/** The time, which passes while requests are carried out. */
let nowMs = 1000;
/** The actions of the paces, in order. */
let log: string[] = [];

beforeEach(() => {
  nowMs = 1000;
  log = [];
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
});
afterEach(() => vi.restoreAllMocks());

/** The next turn of the event loop, after the work that waits for it. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A connection with requests of one byte, which is the time that each takes in milliseconds. */
class Program {
  closed = false;
  readonly #name: string;
  readonly pace: CommandPace;

  constructor(name: string, uid: number, shares: CommandShares) {
    this.#name = name;
    this.pace = new CommandPace(this, shares.of(uid), (bytes, more) => {
      let taken = 0;
      do {
        const costMs = bytes[taken] ?? 0;
        nowMs += costMs;
        log.push(`${name}${costMs}`);
        taken += 1;
      } while (taken < bytes.length && more());
      return taken;
    });
  }

  send(...costs: readonly number[]): void {
    this.pace.receive(Uint8Array.from(costs));
  }

  /** Bytes for which the connection is charged. */
  kept = 0;

  keep(change: number): void {
    this.kept += change;
  }

  pause(): void {
    log.push(`${this.#name} waits`);
  }

  resume(): void {
    log.push(`${this.#name} is read`);
  }
}

describe('requests that arrive together', () => {
  it('run at once while they are cheap', async () => {
    const one = new Program('a', 1, new CommandShares());
    one.send(1, 1, 1);
    expect(log).toEqual(['a1', 'a1', 'a1']);
    await turn();
    expect(log).toHaveLength(3);
  });

  it('otherwise take several turns, in order, and nothing is read meanwhile', async () => {
    const one = new Program('a', 1, new CommandShares());
    one.send(3, 2, 9, 7, 1);
    expect(log.splice(0)).toEqual(['a3', 'a2', 'a waits']);
    await turn();
    expect(log.splice(0)).toEqual(['a9', 'a waits']);
    await turn();
    expect(log.splice(0)).toEqual(['a7', 'a waits']);
    await turn();
    expect(log.splice(0)).toEqual(['a1', 'a is read']);
    await turn();
    expect(log).toEqual([]);
  });

  it('on all connections of a user share a turn, one after the other', async () => {
    const shares = new CommandShares();
    const [a, b, c] = ['a', 'b', 'c'].map((name) => new Program(name, 1, shares));
    const other = new Program('other', 2, shares);
    a?.send(5, 6);
    b?.send(1);
    c?.send(2);
    other.send(1);
    expect(log.splice(0)).toEqual(['a5', 'a waits', 'b waits', 'c waits', 'other1']);
    await turn();
    expect(log.splice(0)).toEqual(['a6', 'a is read']);
    await turn();
    expect(log.splice(0)).toEqual(['b1', 'b is read', 'c2', 'c is read']);
  });

  it('are forgotten with their connection', async () => {
    const one = new Program('a', 1, new CommandShares());
    one.send(5, 6);
    one.closed = true;
    log = [];
    await turn();
    expect(log).toEqual([]);
  });
});

it('bytes that wait are charged to the connection until they are used', async () => {
  const one = new Program('a', 1, new CommandShares());
  one.send(1, 1);
  expect(one.kept).toBe(0);
  one.send(9, 9, 1);
  expect(one.kept).toBe(2);
  await turn();
  // A view of some bytes keeps the memory of all.
  expect(one.kept).toBe(2);
  await turn();
  expect(one.kept).toBe(0);
});
