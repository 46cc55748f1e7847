import { describe, expect, it } from 'vitest';
import { QPState } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { Pacing } from '#daemon/roce/transport/pacing';
import { PacketOperation } from '#daemon/roce/wire/opcode';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { ACK_WITHOUT_CREDITS, rnrSyndrome } from '#daemon/roce/wire/syndrome';
import { addressAt, REMOTE_KEY } from '#test/support/model-user';
import { pathOf, TransportPair, TransportSide } from '#test/support/transport-pair';

const [WINDOW, MOST] = [32, 64];

describe('pacing', () => {
  it('halves the window after a loss, and adds a packet for each window', () => {
    const pacing = new Pacing(WINDOW, MOST);
    pacing.lost();
    expect(pacing.limit).toBe(16);
    pacing.lost();
    pacing.lost();
    pacing.lost();
    expect(pacing.limit).toBe(4);
    pacing.acknowledged(3, 3, 0);
    expect(pacing.limit).toBe(4);
    pacing.acknowledged(1, 4, 0);
    expect(pacing.limit).toBe(5);
    for (let psn = 5; psn < 3000; psn += 1) pacing.acknowledged(1, psn, 0);
    expect(pacing.limit).toBe(MOST);
  });

  it('waits by mean and variation of round trips, and doubles after each timeout', () => {
    const pacing = new Pacing(WINDOW, MOST);
    expect(pacing.patienceMicros).toBe(20_000);
    for (let psn = 0; psn < 100; psn += 1) {
      pacing.sent(psn, psn * 1000);
      pacing.acknowledged(1, psn + 1, psn * 1000 + 100);
    }
    expect(pacing.patienceMicros).toBe(5_000);
    pacing.unanswered();
    pacing.unanswered();
    expect(pacing.patienceMicros).toBe(20_000);
    for (let psn = 100; psn < 300; psn += 1) {
      pacing.sent(psn, psn * 100_000);
      pacing.acknowledged(1, psn + 1, psn * 100_000 + 30_000);
    }
    expect(pacing.patienceMicros).toBeGreaterThanOrEqual(30_000);
    expect(pacing.patienceMicros).toBeLessThan(40_000);
    for (let count = 0; count < 10; count += 1) pacing.unanswered();
    expect(pacing.patienceMicros).toBe(1_000_000);
  });

  it('does not measure retransmitted packets', () => {
    const pacing = new Pacing(WINDOW, MOST);
    pacing.sent(1, 0);
    pacing.lost();
    pacing.acknowledged(1, 2, 900_000);
    expect(pacing.patienceMicros).toBe(20_000);
  });
});

describe('a paced connection', () => {
  function sideOf(): TransportSide {
    const side = new TransportSide(65_536, {});
    side.wire.pace?.(WINDOW, MOST);
    for (const state of [QPState.RTR, QPState.RTS]) {
      side.wire.modified(pathOf({ timeout: 14 }), state, 0);
    }
    const message = { kind: OutboundKind.write, remoteStag: REMOTE_KEY, ...addressAt(0) };
    side.user.work.push({ id: 1, message, payload: new Uint8Array(16_384) });
    return side;
  }

  it('sends a window, and the window of others is larger', () => {
    expect(sideOf().pollAll(0)).toHaveLength(WINDOW);
    const pair = new TransportPair();
    const message = { kind: OutboundKind.write, remoteStag: REMOTE_KEY, ...addressAt(0) };
    pair.a.user.work.push({ id: 1, message, payload: new Uint8Array(32_768) });
    expect(pair.a.pollAll(0)).toHaveLength(64);
  });

  it('retries before the timer of its program, which keeps running and alone counts', () => {
    const side = sideOf();
    side.pollAll(0);
    let asked = 0;
    let now = 0;
    while (side.wire.timeouts === 0 && now < 1_000_000) {
      now = side.wire.nextDeadline();
      side.deadline(now);
      const again = side.pollAll(now);
      if (side.wire.timeouts > 0) break;
      asked += 1;
      // Fewer each time.
      expect(again).toHaveLength(Math.max(WINDOW >> asked, 4));
    }
    // 4.096 microseconds times 2^14, and all that the doubled patience leaves room for.
    expect(now).toBeCloseTo(67_108.864);
    expect(asked).toBe(2);
  });

  it('does not count the wait for a receiver that is not ready as a round trip', () => {
    const side = new TransportSide(65_536, {});
    side.wire.pace?.(WINDOW, MOST);
    for (const state of [QPState.RTR, QPState.RTS]) {
      side.wire.modified(pathOf({ timeout: 20 }), state, 0);
    }
    let now = 0;
    const send = (): void => {
      side.user.work.push({
        id: 1,
        message: { kind: OutboundKind.send },
        payload: new Uint8Array(4),
      });
      expect(side.pollAll(now)).toHaveLength(1);
    };
    const answer = (psn: number, syndrome: number): void => {
      const packet = { ...new Packet(), opcode: PacketOperation.acknowledge, psn, syndrome };
      const bytes = new Uint8Array(packetBytes(packet));
      writeHeaders(bytes, 0, packet);
      side.receive(bytes, now);
    };
    send();
    now += 100;
    answer(100, ACK_WITHOUT_CREDITS);
    send();
    now += 100;
    // 491.52 milliseconds.
    answer(101, rnrSyndrome(31));
    now = side.wire.nextDeadline();
    side.deadline(now);
    expect(side.pollAll(now)).toHaveLength(1);
    now += 100;
    answer(101, ACK_WITHOUT_CREDITS);
    send();
    expect(side.wire.nextDeadline() - now).toBe(5_000);
  });
});
