/** Many connections of one user that have input, or end, in the same turn of the event loop. */
import { afterEach, describe, expect, it } from 'vitest';
import { CommandShares } from '#daemon/clients/command-pace';
import { ProgramConnection } from '#daemon/clients/connection';
import { READS_PER_TURN } from '#daemon/host/links/reading-share';
import { closeDescriptor, sendNow } from '#native-bridge/libc/descriptor';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { socketPair } from '#native-bridge/libc/unix-socket';
import { until } from '#test/support/patience';

/** Connections of a user with many. */
const MANY = 1000;
const readBuffer = new Uint8Array(64);
const users: User[] = [];

afterEach(() => {
  for (const user of users.splice(0)) user.close();
});

/** The next turn: sockets have been polled. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A user's connections to the daemon, with both ends in this process. */
class User {
  readonly ends: (number | undefined)[] = [];
  readonly connections: ProgramConnection[] = [];
  /** Inputs and ends that the daemon has seen. */
  seen = 0;
  #inTurn = 0;
  #most = 0;

  constructor(uid: number, count: number, shares: CommandShares) {
    const peer: PeerProcess = { pid: 1, uid, gid: uid, identity: '1', openDescriptor: () => -1 };
    for (let index = 0; index < count; index += 1) {
      const [own, other] = socketPair();
      const connection = ProgramConnection.pair(own, peer, readBuffer, 64);
      connection.shareTurns(shares.of(uid));
      connection.onBytes = () => this.#see();
      connection.onClosed = () => this.#see();
      this.ends.push(other);
      this.connections.push(connection);
    }
    users.push(this);
  }

  #see(): void {
    if (this.#inTurn === 0) {
      setImmediate(() => {
        this.#inTurn = 0;
      });
    }
    this.seen += 1;
    this.#inTurn += 1;
    this.#most = Math.max(this.#most, this.#inTurn);
  }

  sendAll(): void {
    for (const end of this.ends) sendNow(end ?? -1, Uint8Array.of(1));
  }

  endAll(): void {
    for (const [index, end] of this.ends.entries()) {
      this.ends[index] = undefined;
      if (end !== undefined) closeDescriptor(end);
    }
  }

  /** Waits until the daemon has seen `count`; returns the most that it saw in one turn. */
  async mostInTurn(count: number): Promise<number> {
    await until(`${count} inputs and ends`, () => this.seen >= count);
    expect(this.seen).toBe(count);
    return this.#most;
  }

  close(): void {
    for (const connection of this.connections) connection.close();
    this.endAll();
  }
}

describe('connections of one user', () => {
  it('end a few in each turn when thousands end together', async () => {
    const user = new User(1, MANY, new CommandShares());
    await turn();
    user.endAll();
    expect(await user.mostInTurn(MANY)).toBeLessThanOrEqual(READS_PER_TURN);
  });

  it('end a few in each turn, even with unread replies', async () => {
    const user = new User(1, MANY, new CommandShares());
    await turn();
    for (const connection of user.connections) connection.write(Uint8Array.of(1));
    user.endAll();
    expect(await user.mostInTurn(MANY)).toBeLessThanOrEqual(READS_PER_TURN);
  });

  it('are read a few in each turn, and all of them eventually, whenever they have input', async () => {
    const user = new User(1, MANY, new CommandShares());
    await turn();
    for (const round of [1, 2, 3]) {
      user.sendAll();
      expect(await user.mostInTurn(round * MANY)).toBeLessThanOrEqual(READS_PER_TURN);
    }
  });

  it('delay no connection of another user', async () => {
    const shares = new CommandShares();
    const [many, other] = [new User(1, MANY, shares), new User(2, 1, shares)];
    await turn();
    many.endAll();
    await turn();
    other.sendAll();
    await other.mostInTurn(1);
    expect(many.seen).toBeLessThan(MANY);
    await many.mostInTurn(MANY);
  });

  it('stay paused while their requests wait, even if other clients may be read', async () => {
    const user = new User(1, MANY, new CommandShares());
    await turn();
    const [paused] = user.connections;
    paused?.pause();
    user.sendAll();
    await user.mostInTurn(MANY - 1);
    await turn();
    expect(user.seen).toBe(MANY - 1);
    paused?.resume();
    await user.mostInTurn(MANY);
  });
});
