import fc from 'fast-check';
import { expect, it } from 'vitest';
import { SQE, SQE_BYTES } from '#contract/protocol/queue-layout';
import { WROpcode } from '#contract/verbs/enums';
import { SendRing } from '#verbs-api/client/send-ring';

/** A consumer as documented: clears elements in turn, and is idle only at one that is not VALID. */
class Consumer {
  readonly taken: number[] = [];
  awake = false;
  readonly #view: DataView;
  readonly #count: number;
  #next = 0;

  constructor(memory: Uint8Array, count: number) {
    this.#view = new DataView(memory.buffer);
    this.#count = count;
  }

  get pending(): boolean {
    return (this.#view.getUint8(this.#position + SQE.flags) & 1) !== 0;
  }

  step(): void {
    if (!this.awake) return;
    if (!this.pending) {
      this.awake = false;
      return;
    }
    this.taken.push(Number(this.#view.getBigUint64(this.#position + SQE.wrId, true)));
    this.#view.setUint16(this.#position + SQE.flags, 0, true);
    this.#next = (this.#next + 1) % this.#count;
  }

  get #position(): number {
    return this.#next * SQE_BYTES;
  }
}

it('no element is left behind by an idle consumer, however posts and consumption mix', () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('post' as const), count: fc.integer({ min: 1, max: 9 }) }),
    fc.record({ kind: fc.constant('consume' as const), count: fc.integer({ min: 1, max: 9 }) }),
  );
  const size = fc.constantFrom(1, 2, 4, 8);
  fc.assert(
    fc.property(size, fc.array(step), fc.array(fc.nat(3)), (count, steps, gaps) => {
      const memory = new Uint8Array(count * SQE_BYTES);
      const ring = new SendRing(memory, { count, maxSge: 1, maxInline: 0, sqSigAll: false });
      const consumer = new Consumer(memory, count);
      let posted = 0;
      let gap = 0;
      for (const { kind, count: repeat } of steps) {
        for (let index = 0; index < repeat; index += 1) {
          if (kind === 'consume') consumer.step();
          else if (ring.post({ opcode: WROpcode.send, wrId: posted }) === undefined) posted += 1;
          // The consumer runs between the posts of a batch, too.
          const pause = gaps[gap % Math.max(gaps.length, 1)] ?? 0;
          gap += 1;
          for (let turn = 0; turn < pause; turn += 1) consumer.step();
        }
        if (kind === 'post' && ring.doorbellDue()) consumer.awake = true;
        expect(consumer.awake || !consumer.pending).toBe(true);
      }
      while (consumer.awake) consumer.step();
      expect(consumer.taken).toEqual(Array.from({ length: posted }, (_, index) => index));
    }),
    { numRuns: 500 },
  );
});
