/** Send queues that are polled without doorbells, and the flags for their programs. */
import { beforeEach, describe, expect, it } from 'vitest';
import { QPState } from '#contract/verbs/enums';
import { SendWatch, type WatchedSends } from '#daemon/kernel/uverbs/send-watch';
import { SendWords } from '#daemon/kernel/uverbs/send-words';
import type { QP } from '#daemon/rnic/queue-pair';

const BURST = 8;
const NOW = 42;

let posted: number;
let taken: number;
let looks: (() => void)[];
let yields: number;
let finds: number;
let memory: Uint8Array;
/** The time of each look at the queue; undefined if it reads the clock. */
let times: (number | undefined)[];
let sends: WatchedSends;
let watch: SendWatch;

beforeEach(() => {
  posted = 0;
  taken = 0;
  looks = [];
  yields = 0;
  finds = 0;
  times = [];
  memory = new Uint8Array(new SharedArrayBuffer(64));
  const words = new SendWords();
  words.place(memory);
  words.handleState(QPState.RTS);
  // The watch reads no other property of a queue pair.
  const qp = {
    get sendsTaken() {
      return taken;
    },
  } as QP;
  sends = { qp, words, watched: false, emptyLooks: 0, streaming: 0 };
  const host = {
    doorbell: (_qp: QP, now?: number) => {
      times.push(now);
      taken = posted;
    },
    recent: () => NOW,
    soon: (run: () => void) => looks.push(run),
  };
  watch = new SendWatch(host, {
    yieldCore: () => {
      yields += 1;
    },
    onFound: () => {
      finds += 1;
    },
  });
});

/** The flag that the program reads before it rings the doorbell. */
function word(): number {
  return new Int32Array(memory.buffer, 56, 1)[0] ?? -1;
}

/** Posts as the preload library does; true if it rings the doorbell. */
function post(count: number): boolean {
  posted += count;
  const words = new Int32Array(memory.buffer, 56, 1);
  return Atomics.compareExchange(words, 0, 1, 2) === 1;
}

function turn(): void {
  for (const look of looks.splice(0)) look();
}

describe('a watch of send queues', () => {
  it('reads the clock to poll, not for a doorbell, whose request has read it', () => {
    post(BURST);
    watch.ring(sends);
    post(1);
    watch.ring(sends);
    turn();
    expect(times).toEqual([NOW, undefined]);
  });

  it('stops polling the queue of a program that waits for each reply', () => {
    for (let message = 1; message <= 5; message += 1) {
      expect(post(1)).toBe(true);
      watch.ring(sends);
      expect([taken, word(), looks.length]).toEqual([message, 1, 0]);
    }
  });

  it('leaves work that is posted while a doorbell is in flight to that doorbell', () => {
    expect(post(1)).toBe(true);
    expect(post(1)).toBe(false);
    watch.ring(sends);
    expect([taken, word()]).toEqual([2, 1]);
  });

  it('polls the queue of a program that streams, and yields while it is empty', () => {
    post(BURST);
    watch.ring(sends);
    expect(word()).toBe(2);
    expect(post(3)).toBe(false);
    turn();
    expect([taken, yields, finds]).toEqual([BURST + 3, 0, 1]);
    turn();
    expect([word(), yields, finds]).toEqual([2, 1, 1]);
  });

  it('stops polling a queue that stays empty, and polls once more after it has set the flag', () => {
    post(BURST);
    watch.ring(sends);
    for (let empty = 0; empty < 15; empty += 1) turn();
    expect(word()).toBe(2);
    posted += 1;
    turn();
    for (let empty = 0; empty < 20; empty += 1) turn();
    expect([taken, word(), looks.length]).toEqual([BURST + 1, 1, 0]);
    expect(post(1)).toBe(true);
  });

  it('forgets a queue pair that is gone', () => {
    post(BURST);
    watch.ring(sends);
    watch.forget(sends);
    post(1);
    turn();
    expect([taken, looks.length]).toEqual([BURST, 0]);
  });

  it('takes the work of a process that ended before its doorbell', () => {
    expect(post(2)).toBe(true);
    watch.distrust(sends);
    expect([taken, word()]).toEqual([2, 1]);
  });

  it('requires a command as doorbell before RTS, whatever the program wrote', () => {
    sends.words.handleState(QPState.INIT);
    sends.words.silence();
    expect(word()).toBe(0);
    memory.fill(0xff);
    watch.ring(sends);
    expect(word()).toBe(-1);
    sends.words.handleState(QPState.RTS);
    expect(word()).toBe(1);
  });
});
