import { beforeEach, describe, expect, it } from 'vitest';
import { AGENT_TRANSFER_MAX_BYTES } from '#contract/protocol/ipc-records';
import { AgentBacking } from '#daemon/clients/objects/agent-backing';
import { AgentChannel, WRITING_MAX_BYTES } from '#daemon/clients/objects/agent-channel';
import { STAGED_MAX_BYTES } from '#daemon/clients/objects/staged-memory';
import { MemoryAgent } from '#verbs-api/client/memory-agent';

const ADDRESS = 0x7f00_0000_1000;

/** The two ends of an agent connection, which carries bytes when the test requests it. */
class Rig {
  readonly memory: Uint8Array;
  readonly channel: AgentChannel;
  readonly backing: AgentBacking;
  readonly connection = {
    closed: false,
    unreadMaxBytes: 0,
    keep: (change: number) => {
      this.kept += change;
    },
    write: (bytes: Uint8Array) => void this.#toClient.push(bytes.slice()),
  };
  /** Bytes for which the connection is charged. */
  kept = 0;
  epoch = 0;
  ready = 0;
  readonly #agent = new MemoryAgent();
  readonly #toClient: Uint8Array[] = [];
  readonly #toDaemon: Uint8Array[] = [];
  readonly #reader = this.#agent.reader((bytes) => void this.#toDaemon.push(bytes));

  constructor(lengthBytes = 4096) {
    this.memory = new Uint8Array(lengthBytes).map((_, index) => index * 7);
    this.#agent.note(BigInt(ADDRESS), this.memory);
    this.#agent.begin(BigInt(ADDRESS))(1);
    this.channel = new AgentChannel(this.connection);
    this.backing = new AgentBacking(this.channel, ADDRESS, lengthBytes, () => this.epoch);
    this.backing.onReady = () => {
      this.ready += 1;
    };
  }

  /** Requests that the client has not seen yet. */
  get waiting(): number {
    return this.#toClient.length;
  }

  /** Carries up to this many pending requests to the client, and the answers back. */
  exchange(most = Number.POSITIVE_INFINITY): void {
    for (const bytes of this.#toClient.splice(0, most)) this.#reader.push(bytes);
    for (const bytes of this.#toDaemon.splice(0)) this.channel.handleBytes(bytes);
  }

  /** The client deregisters the memory. */
  deregister(): void {
    this.#agent.remove(1);
  }

  /** Fetches and reads a range. */
  fetch(offset: number, length: number): Uint8Array {
    expect(this.backing.prepareRead(offset, length)).toBe(false);
    this.exchange();
    expect(this.backing.prepareRead(offset, length)).toBe(true);
    return this.read(offset, length);
  }

  read(offset: number, length: number): Uint8Array {
    const target = new Uint8Array(length);
    expect(this.backing.read(offset, length, target, 0)).toBe(true);
    return target;
  }
}

let rig: Rig;

beforeEach(() => {
  rig = new Rig();
});

describe('reads through an agent', () => {
  it('are fetched first; onReady reports when they are available', () => {
    expect(rig.backing.prepareRead(100, 50)).toBe(false);
    expect(rig.backing.read(100, 50, new Uint8Array(50), 0)).toBe(false);
    expect(rig.backing.prepareRead(100, 50)).toBe(false);
    expect(rig).toMatchObject({ waiting: 1, ready: 0 });
    rig.exchange();
    expect(rig.ready).toBe(1);
    expect(rig.backing.prepareRead(100, 50)).toBe(true);
    const target = new Uint8Array(60).fill(0xa5);
    expect(rig.backing.read(110, 20, target, 5)).toBe(true);
    expect(target.subarray(5, 25)).toEqual(rig.memory.subarray(110, 130));
    expect(target[4]).toBe(0xa5);
    expect(target[25]).toBe(0xa5);
  });

  it('may repeat in one turn, and fetch again in the next', async () => {
    rig.fetch(0, 16);
    expect(rig.read(0, 16)).toEqual(rig.memory.subarray(0, 16));
    await Promise.resolve();
    rig.memory[3] = 99;
    expect(rig.fetch(0, 16)[3]).toBe(99);
    expect(rig.channel.staged.bytes).toBe(16);
    await Promise.resolve();
    expect(rig.channel.staged.bytes).toBe(0);
  });

  it('longer than a transfer are split', () => {
    rig = new Rig(AGENT_TRANSFER_MAX_BYTES * 2 + 100);
    const length = AGENT_TRANSFER_MAX_BYTES * 2 + 50;
    expect(Buffer.compare(rig.fetch(10, length), rig.memory.subarray(10, 10 + length))).toBe(0);
    expect(rig.ready).toBe(1);
  });

  it('never see bytes fetched for abandoned work', () => {
    expect(rig.backing.prepareRead(0, 8)).toBe(false);
    rig.exchange();
    // The queue pair failed; the program changed its buffer and posted it on another one.
    rig.epoch = 1;
    rig.memory.fill(42);
    expect(rig.fetch(0, 8)).toEqual(new Uint8Array(8).fill(42));
  });

  it('never see bytes fetched for a read that was abandoned, arrived or not', () => {
    for (const arrives of [true, false]) {
      expect(rig.backing.prepareRead(0, 8)).toBe(false);
      if (arrives) rig.exchange();
      rig.backing.abandonRead(4, 1);
      if (!arrives) rig.exchange();
      // The message was acknowledged after all; the program fills its buffer for the next one.
      rig.memory.fill(arrives ? 42 : 43);
      expect(rig.fetch(0, 8)).toEqual(new Uint8Array(8).fill(arrives ? 42 : 43));
      rig.backing.abandonRead(0, 8);
    }
  });

  it('drop bytes that were never used when the staging area is full', () => {
    rig = new Rig(STAGED_MAX_BYTES + 4096);
    expect(rig.backing.prepareRead(0, STAGED_MAX_BYTES)).toBe(false);
    rig.exchange();
    expect(rig.channel.staged.bytes).toBe(STAGED_MAX_BYTES);
    rig.fetch(STAGED_MAX_BYTES, 4096);
    expect(rig.channel.staged.bytes).toBe(4096);
    expect(rig.backing.prepareRead(0, STAGED_MAX_BYTES)).toBe(false);
  });
});

describe('many regions of one client', () => {
  it('share its staging area, so bytes that were never used do not add up', () => {
    const regionBytes = STAGED_MAX_BYTES / 8;
    rig = new Rig(regionBytes);
    const region = () => new AgentBacking(rig.channel, ADDRESS, regionBytes, () => rig.epoch);
    const regions = Array.from({ length: 20 }, region);
    for (const backing of regions) {
      expect(backing.prepareRead(0, regionBytes)).toBe(false);
      rig.exchange();
    }
    expect(rig.channel.staged.bytes).toBe(STAGED_MAX_BYTES);
    expect(rig.kept).toBe(STAGED_MAX_BYTES);
    rig.channel.assertInvariants();
    // The oldest is fetched again, and whole.
    const [oldest] = regions;
    const target = new Uint8Array(regionBytes);
    expect(oldest?.prepareRead(0, regionBytes)).toBe(false);
    rig.exchange();
    expect(oldest?.read(0, regionBytes, target, 0)).toBe(true);
    expect(Buffer.compare(target, rig.memory)).toBe(0);
    for (const backing of regions) backing.release();
    expect(rig.channel.staged.bytes).toBe(0);
    expect(rig.kept).toBe(0);
  });

  it('keep nothing of an agent that has left', () => {
    expect(rig.backing.prepareRead(0, 64)).toBe(false);
    rig.exchange();
    expect(rig.kept).toBe(64);
    rig.channel.handleClosed();
    expect(rig.channel.staged.bytes).toBe(0);
    expect(rig.kept).toBe(0);
    expect(rig.backing.read(0, 64, new Uint8Array(64), 0)).toBe(false);
  });

  it('are charged for requests that the agent does not answer', () => {
    for (let at = 0; at < 64; at += 1) rig.backing.prepareRead(at * 64, 1);
    const { pendingCount, staged } = rig.channel;
    expect(pendingCount).toBeGreaterThan(0);
    expect(rig.kept).toBe(staged.bytes + 256 * pendingCount);
    rig.exchange();
    expect(rig.kept).toBe(staged.bytes);
  });

  it('are charged for an answer that has arrived in part', () => {
    rig.channel.handleBytes(new Uint8Array(8));
    expect(rig.kept).toBeGreaterThanOrEqual(8);
  });
});

describe('writes through an agent', () => {
  it('are pending until the agent has carried them out', () => {
    const bytes = Uint8Array.of(0, 1, 2, 3, 4);
    expect(rig.backing.write(20, bytes, 1, 3)).toBe(true);
    bytes.fill(0xa5);
    expect(rig.backing.pendingWrites).toBe(1);
    expect(rig.memory[20]).toBe(20 * 7);
    rig.exchange();
    expect(rig.memory.subarray(20, 23)).toEqual(Uint8Array.of(1, 2, 3));
    expect(rig.memory[23]).toBe((23 * 7) & 0xff);
    expect(rig.backing.pendingWrites).toBe(0);
    expect(rig.ready).toBe(1);
  });

  it('are seen by later reads, even those fetched before', () => {
    expect(rig.backing.prepareRead(0, 64)).toBe(false);
    rig.exchange();
    rig.backing.write(10, new Uint8Array(4).fill(77), 0, 4);
    expect(rig.fetch(0, 64).subarray(9, 15)).toEqual(
      Uint8Array.of((9 * 7) & 0xff, 77, 77, 77, 77, (14 * 7) & 0xff),
    );
  });

  it('make the memory congested until the agent has caught up', () => {
    rig = new Rig(WRITING_MAX_BYTES * 2);
    const bytes = new Uint8Array(AGENT_TRANSFER_MAX_BYTES);
    let writes = 0;
    for (; !rig.backing.congested; writes += 1) {
      rig.backing.write(writes * bytes.length, bytes, 0, bytes.length);
    }
    // A transfer costs its bytes plus a small fixed amount.
    expect(writes).toBe(WRITING_MAX_BYTES / bytes.length);
    rig.exchange(writes / 2);
    expect(rig.backing.congested).toBe(true);
    expect(rig.ready).toBe(0);
    rig.exchange(1);
    expect(rig.backing.congested).toBe(false);
    // One notification for paused clients; the completions that follow all writes still wait.
    expect(rig.ready).toBe(1);
    expect(rig.backing.pendingWrites).toBeGreaterThan(0);
    rig.exchange();
    expect(rig.ready).toBe(2);
  });

  it('of single bytes congest it, too, before they cost much', () => {
    let writes = 0;
    for (; !rig.backing.congested && writes < 100_000; writes += 1) {
      rig.backing.write(0, Uint8Array.of(1), 0, 1);
    }
    expect(writes).toBeLessThan(10_000);
    rig.exchange();
    expect(rig.backing.congested).toBe(false);
  });

  it('longer than a transfer are split, and complete with the last part', () => {
    const length = AGENT_TRANSFER_MAX_BYTES + 1;
    rig = new Rig(length);
    const bytes = new Uint8Array(length).fill(9);
    expect(rig.backing.write(0, bytes, 0, length)).toBe(true);
    expect(rig.backing.pendingWrites).toBe(2);
    rig.exchange();
    expect(rig.backing.pendingWrites).toBe(0);
    expect(rig.ready).toBe(1);
    expect(rig.memory).toEqual(bytes);
  });
});

describe('memory that disappears', () => {
  function expectLost(): void {
    expect(rig.backing.prepareRead(0, 8)).toBe(true);
    expect(rig.backing.read(0, 8, new Uint8Array(8), 0)).toBe(false);
    expect(rig.backing.write(0, new Uint8Array(8), 0, 8)).toBe(false);
  }

  it('the client no longer has the memory: waiting work fails', () => {
    rig.deregister();
    expect(rig.backing.prepareRead(0, 8)).toBe(false);
    rig.exchange();
    expect(rig.ready).toBe(1);
    expectLost();
  });

  it('a write fails', () => {
    rig.deregister();
    expect(rig.backing.write(0, new Uint8Array(8), 0, 8)).toBe(true);
    expect(rig.backing.writeLost).toBe(false);
    rig.exchange();
    expect(rig.ready).toBe(1);
    expect(rig.backing.writeLost).toBe(true);
    expectLost();
  });

  it('the region is released during a write: waiting work fails', () => {
    expect(rig.backing.write(0, new Uint8Array(8), 0, 8)).toBe(true);
    rig.backing.release();
    rig.deregister();
    rig.exchange();
    expect(rig.ready).toBe(1);
    expect(rig.backing.writeLost).toBe(false);
    expectLost();
  });

  it('the agent exits: waiting work fails', () => {
    expect(rig.backing.prepareRead(0, 8)).toBe(false);
    expect(rig.backing.write(0, new Uint8Array(8), 0, 8)).toBe(true);
    rig.connection.closed = true;
    rig.channel.handleClosed();
    expect(rig.backing.pendingWrites).toBe(0);
    expect(rig.ready).toBeGreaterThan(0);
    expectLost();
  });

  it('the region is released: late answers are dropped', () => {
    expect(rig.backing.prepareRead(0, 8)).toBe(false);
    rig.backing.release();
    rig.exchange();
    // The waiter checks again, and finds the memory lost.
    expect(rig.ready).toBe(1);
    expect(rig.channel.staged.bytes).toBe(0);
    expectLost();
  });

  it('a range outside the region is refused', () => {
    expect(rig.backing.prepareRead(4090, 8)).toBe(true);
    expect(rig.backing.read(4090, 8, new Uint8Array(8), 0)).toBe(false);
    expect(rig.backing.write(4090, new Uint8Array(8), 0, 8)).toBe(false);
    expect(rig.waiting).toBe(0);
  });
});
