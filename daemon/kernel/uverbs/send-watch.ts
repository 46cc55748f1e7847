/**
 * Polls send queues in each turn of the event loop, so that programs which post faster than the
 * daemon takes need no system call to ring the doorbell. A queue that was empty a few times is no
 * longer polled, and its program rings again. While a doorbell is in flight, the program sends no
 * other.
 *
 * No post is missed: the program posts, then reads the word that says whether to ring, and changes it
 * if it rings; the watch resets the word, then checks the queue. Both orders are sequentially
 * consistent, so at least one side sees the other's write.
 */
import type { Micros } from '#base/time';
import type { QP } from '#daemon/rnic/queue-pair';
import type { SendWords } from './send-words.ts';

/**
 * Work requests found at once from which a program counts as streaming. One that waits for each reply
 * posts one at a time, and polling would only delay it.
 */
const BURST_MIN = 8;
/** Doorbells for which a streaming program's queue is polled although they announce little work. */
const STREAM_DOORBELLS = 32;
/**
 * Consecutive polls without new work after which polling stops, and the program rings again: a message over a
 * socket. `daemon/host/README.md` compares 4, 16 and 48.
 */
const EMPTY_LOOKS_MAX = 16;

interface WatchHost {
  /** `now`: the time; by default it reads the clock. */
  doorbell(qp: QP, now?: Micros): void;
  /** The last reading of the clock. */
  recent(): Micros;
  /** Calls back in the next turn of the event loop. */
  soon(run: () => void): void;
}

/** Callbacks of a watch. */
interface WatchOptions {
  /**
   * Yields the core to another thread: the doorbell's wake-up often puts the daemon on the core of the program
   * that rang, which then cannot post.
   */
  readonly yieldCore: () => void;
  /** A poll has found new work. */
  readonly onFound: () => void;
}

/** A send queue for the watch. The fields after `words` belong to the watch. */
export interface WatchedSends {
  readonly qp: QP;
  readonly words: SendWords;
  watched: boolean;
  /** Polls since the last new work. */
  emptyLooks: number;
  /** Remaining doorbells for which its program still counts as streaming. */
  streaming: number;
}

export class SendWatch {
  readonly #host: WatchHost;
  readonly #options: WatchOptions;
  #watched: WatchedSends[] = [];
  #looking: WatchedSends[] = [];

  constructor(host: WatchHost, options: WatchOptions) {
    this.#host = host;
    this.#options = options;
  }

  /** The program rang. */
  ring(sends: WatchedSends): void {
    // It rang before it saw that it need not: the next poll is due in this turn anyway.
    if (sends.watched) return;
    sends.words.listen();
    // The request that rang has started with a reading.
    this.#take(sends, this.#host.recent());
    if (sends.streaming === 0) return;
    sends.streaming -= 1;
    sends.watched = true;
    sends.emptyLooks = 0;
    sends.words.silence();
    this.#add(sends);
  }

  /** A process that mapped the queue is gone, perhaps before it rang. */
  distrust(sends: WatchedSends): void {
    if (!sends.watched) this.#leave(sends);
  }

  /** The queue pair is about to be destroyed. */
  forget(sends: WatchedSends): void {
    sends.watched = false;
  }

  readonly #look = (): void => {
    const looking = this.#watched;
    this.#watched = this.#looking;
    let found = false;
    for (const sends of looking) {
      if (!sends.watched) continue;
      sends.emptyLooks += 1;
      if (this.#take(sends) > 0) {
        sends.emptyLooks = 0;
        found = true;
      }
      if (sends.emptyLooks < EMPTY_LOOKS_MAX) this.#add(sends);
      else this.#leave(sends);
    }
    looking.length = 0;
    this.#looking = looking;
    if (found) this.#options.onFound();
    else if (this.#watched.length > 0) this.#options.yieldCore();
  };

  #leave(sends: WatchedSends): void {
    sends.watched = false;
    sends.words.listen();
    this.#take(sends);
  }

  #add(sends: WatchedSends): void {
    if (this.#watched.length === 0) this.#host.soon(this.#look);
    this.#watched.push(sends);
  }

  /** Starts posted work; returns how many work requests that took out of the queue. */
  #take(sends: WatchedSends, now?: Micros): number {
    const { qp } = sends;
    const before = qp.sendsTaken;
    this.#host.doorbell(qp, now);
    const taken = (qp.sendsTaken - before) >>> 0;
    if (taken >= BURST_MIN) sends.streaming = STREAM_DOORBELLS;
    return taken;
  }
}
