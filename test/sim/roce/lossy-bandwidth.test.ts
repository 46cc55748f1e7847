/**
 * The cost of losses for a connection whose packets leave the host: simulated time for the same data over a
 * link of one packet in ten microseconds, with and without loss.
 */
import { expect, it } from 'vitest';
import { QPState } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { addressAt, REMOTE_KEY } from '#test/support/model-user';
import { Prng } from '#test/support/prng';
import { pathOf, TransportSide } from '#test/support/transport-pair';

const [FIRST_WINDOW_PACKETS, WINDOW_PACKETS] = [32, 64];
const PACKET_MICROS = 10;
const DELAY_MICROS = 50;
const MESSAGE_BYTES = 16_384;
const MESSAGES = 1000;
const MTU_CODE = 3;
/** Timeout 14, which programs use: 67 milliseconds. */
const PATH = pathOf({ pathMtu: MTU_CODE, timeout: 14, retryCnt: 7 });
const SEED = 7;

interface Outcome {
  readonly micros: number;
  readonly packets: number;
  readonly timeouts: number;
}

/** Sends everything from one side to the other. */
function transfer(kind: 'write' | 'read', lostPercent: number): Outcome {
  const prng = new Prng(SEED);
  const sides = [0, 1].map(() => new TransportSide(1 << 16, {}));
  const [a, b] = sides as [TransportSide, TransportSide];
  for (const { wire } of sides) {
    wire.pace?.(FIRST_WINDOW_PACKETS, WINDOW_PACKETS);
    wire.modified(PATH, QPState.RTR, 0);
    wire.modified(PATH, QPState.RTS, 0);
  }
  let done = 0;
  a.user.onDone = () => {
    done += 1;
  };
  for (let index = 0; index < MESSAGES; index += 1) {
    const write = kind === 'write';
    const opcode = write ? OutboundKind.write : OutboundKind.readRequest;
    const message = { kind: opcode, remoteStag: REMOTE_KEY, ...addressAt(0) };
    const bytes = new Uint8Array(MESSAGE_BYTES);
    a.user.work.push({ id: index, message, ...(write ? { payload: bytes } : { sink: bytes }) });
  }
  const flights: { at: number; to: TransportSide; bytes: Uint8Array }[] = [];
  const free = new Map(sides.map((side) => [side, 0]));
  let [now, packets] = [0, 0];
  while (done < MESSAGES) {
    for (const side of sides) {
      while ((free.get(side) ?? 0) <= now) {
        const bytes = side.poll(now);
        if (bytes === undefined) break;
        packets += 1;
        free.set(side, now + PACKET_MICROS);
        if (prng.below(1000) < lostPercent * 10) continue;
        flights.push({ at: now + DELAY_MICROS, to: side === a ? b : a, bytes });
      }
    }
    expect(a.failure ?? b.failure).toBeUndefined();
    const busy = sides.map((side) => free.get(side) ?? 0).filter((at) => at > now);
    const dues = sides.map(({ wire }) => wire.nextDeadline());
    now = Math.max(now, Math.min(...busy, ...dues, flights[0]?.at ?? Number.POSITIVE_INFINITY));
    for (const side of sides) if (side.wire.nextDeadline() <= now) side.deadline(now);
    while ((flights[0]?.at ?? Number.POSITIVE_INFINITY) <= now) {
      const { to, bytes } = flights.shift() as (typeof flights)[number];
      to.receive(bytes, now);
    }
  }
  return { micros: now, packets, timeouts: a.wire.timeouts };
}

it.each(['write', 'read'] as const)(
  'a %s keeps more than a tenth of its speed when one packet in a hundred is lost',
  (kind) => {
    const clean = transfer(kind, 0);
    const lossy = transfer(kind, 1);
    expect(clean.timeouts).toBe(0);
    expect(lossy.micros).toBeGreaterThan(clean.micros);
    expect(lossy.micros).toBeLessThan(10 * clean.micros);
    // No storm: a window that is small by then bounds retransmissions and answers.
    expect(lossy.packets).toBeLessThan(1.6 * clean.packets);
  },
);

it('a Write completes when one packet in ten is lost, and is sent at most three times', () => {
  const clean = transfer('write', 0);
  const lossy = transfer('write', 10);
  expect(lossy.packets).toBeLessThan(3 * clean.packets);
});
