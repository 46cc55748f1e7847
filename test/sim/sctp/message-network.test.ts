/** The network of the simulation is itself tested: it must reorder, and not lose or change messages. */
import { describe, expect, it } from 'vitest';
import type { Association, AssociationUser } from '#daemon/host/sctp/association';
import { Prng } from '#test/support/prng';
import { VirtualTime } from '#test/support/virtual-time';
import { MessageNetwork } from './message-network.ts';
import type { SimAssociation } from './sim-association.ts';

const KIND = { payloadProtocol: 16, unordered: true, acknowledgeAtOnce: false };
const TRAITS = {
  delayMin: 1,
  delayMax: 100,
  bufferBytes: 4096,
  windowBytes: 4096,
  messageMaxBytes: 1426,
  eventsInLine: true,
};

class Recorder implements AssociationUser {
  readonly log: string[] = [];
  readonly first: number[] = [];
  handleMessage(streamId: number, ppid: number, unordered: boolean, bytes: Uint8Array): void {
    this.log.push(`${streamId}/${ppid}/${unordered}/${bytes.length}`);
    this.first.push(bytes[0] ?? -1);
  }
  handleWritable(): void {
    this.log.push('writable');
  }
  handleAcknowledged(): void {
    this.log.push('acknowledged');
  }
  handlePathChanged(): void {}
  handlePeerShutdown(): void {
    this.log.push('peer-shutdown');
  }
  handleEnded(end: { readonly kind: string }): void {
    this.log.push(end.kind);
  }
}

/** An association, and the users of its ends. */
function opened(seed: number) {
  const time = new VirtualTime();
  const network = new MessageNetwork(time, new Prng(seed), () => TRAITS);
  const options = { adaptation: 1, streamCount: 4 };
  const user = { a: new Recorder(), b: new Recorder() };
  const ends: Association[] = [];
  network.hold({ address: '10.0.0.2', port: 7174 }, options).listen((association) => {
    association.user = user.b;
    ends.push(association);
  });
  network.hold({ address: '10.0.0.1', port: 0 }, options).open(
    { address: '10.0.0.2', port: 7174 },
    (association) => {
      association.user = user.a;
      ends.push(association);
    },
    () => {},
  );
  while (time.step());
  const [b, a] = ends;
  if (a === undefined || b === undefined) throw new Error('the association did not open');
  return { time, a, b, user };
}

describe('a simulated association', () => {
  it('delivers each message whole and once, in any order, then acknowledges it', () => {
    const { time, a, user } = opened(7);
    for (let n = 0; n < 20; n++) expect(a.send(2, KIND, new Uint8Array(100).fill(n))).toBe(true);
    while (time.step());
    const sent = Array.from({ length: 20 }, (_, n) => n);
    expect(user.b.first).not.toEqual(sent);
    expect(user.b.first.toSorted((x, y) => x - y)).toEqual(sent);
    expect(user.b.log.every((line) => line === '2/16/true/100')).toBe(true);
    expect(user.a.log).toEqual(['acknowledged']);
  });

  it('rejects messages without room, and reports when there is room', () => {
    const { time, a, user } = opened(8);
    expect(a.send(0, KIND, new Uint8Array(4000))).toBe(true);
    expect(a.send(0, KIND, new Uint8Array(4000))).toBe(false);
    while (time.step());
    expect(user.a.log).toEqual(['acknowledged', 'writable']);
  });

  it('acknowledges no more unread data than the window holds', () => {
    const { time, a, b, user } = opened(11);
    b.pauseReading();
    for (let n = 0; n < 4; n++) expect(a.send(0, KIND, new Uint8Array(1000))).toBe(true);
    while (time.step());
    expect(a.unacknowledged).toBe(false);
    for (let n = 0; n < 4; n++) expect(a.send(0, KIND, new Uint8Array(1000))).toBe(true);
    while (time.step());
    expect(a.unacknowledged).toBe(true);
    b.resumeReading();
    while (time.step());
    expect(a.unacknowledged).toBe(false);
    expect(user.b.log.length).toBe(8);
  });

  it('gives up a path that has vanished', () => {
    const { time, a, user } = opened(12);
    const end = a as SimAssociation;
    a.send(0, KIND, new Uint8Array(1000));
    end.vanish();
    while (time.step());
    expect([user.a.log, user.b.log]).toEqual([['lost'], ['lost']]);
  });

  it('ends by SHUTDOWN after what was sent, or by ABORT at once', () => {
    const graceful = opened(9);
    graceful.a.send(0, KIND, new Uint8Array(10));
    graceful.a.shutdown();
    while (graceful.time.step());
    expect(graceful.user.b.log).toEqual(['0/16/true/10', 'peer-shutdown', 'shutdown']);
    expect(graceful.user.a.log).toEqual(['acknowledged', 'shutdown']);
    const cut = opened(10);
    cut.a.abort();
    while (cut.time.step());
    expect(cut.user.b.log).toEqual(['aborted']);
    expect(cut.user.a.log).toEqual([]);
  });
});
