/** Messages that stay whole within a host: one packet stands for several PSNs. */
import { describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { MessageFailure, OutboundKind } from '#daemon/rnic/wire-port';
import { addressAt, REMOTE_KEY } from '#test/support/model-user';
import { parsed, pathOf, TransportPair, TransportSide } from '#test/support/transport-pair';

const { send, write, writeWithImmediate, readRequest } = OutboundKind;
const WHOLE_BYTES = 4096;

function post({ a }: TransportPair, id: number, kind: OutboundKind, length: number): void {
  const payload = Uint8Array.from({ length }, (_, index) => index * 3 + id);
  const message = { kind, remoteStag: REMOTE_KEY, lengthBytes: length, ...addressAt(0) };
  a.user.work.push({ id, message, payload });
}

/** Spans of the packets that leave now, all of them lost. */
function spansOf(side: TransportSide, now = 0): number[] {
  return side.pollAll(now).map((bytes) => parsed(bytes).span);
}

describe.each([
  ['RC', QPType.rc],
  ['UC', QPType.uc],
])('%s within a host', (_name, type) => {
  it('sends a message as one packet that has the PSNs of all', () => {
    const pair = new TransportPair({}, { type }, WHOLE_BYTES);
    post(pair, 0, send, 1000);
    pair.b.user.receives.push(1000);
    const packet = pair.a.poll(0);
    expect(parsed(packet)).toMatchObject({ psn: 100, span: 4, payloadLength: 1000 });
    if (packet !== undefined) pair.b.receive(packet, 0);
    pair.run();
    expect(pair.b.user.arrivals).toHaveLength(1);
    expect(pair.a.user.done).toHaveLength(1);
    expect([pair.a.wire.sqPsn, pair.b.wire.rqPsn]).toEqual([104, 104]);
  });

  it('sends a longer message in as few packets as the length allows', () => {
    const pair = new TransportPair({}, { type }, 512);
    post(pair, 0, write, 1300);
    expect(spansOf(pair.a)).toEqual([2, 2, 2]);
  });

  it('sends less at once from memory that has to be fetched', () => {
    const pair = new TransportPair({ pathMtu: 5 }, { type }, 65_536);
    let ready = false;
    pair.a.user.ready = () => ready;
    post(pair, 0, write, 65_536);
    expect(spansOf(pair.a)).toEqual([]);
    ready = true;
    pair.a.wire.pump(0);
    expect(spansOf(pair.a)).toEqual([4, 4, 4, 4]);
  });

  it('takes no message of another path MTU', () => {
    for (const [sender, receiver] of [
      [1, 3],
      [3, 1],
    ] as const) {
      const pair = new TransportPair({}, { type }, WHOLE_BYTES);
      const [a, b] = [sender, receiver].map((pathMtu) => {
        const side = new TransportSide(65_536, { type }, WHOLE_BYTES);
        side.wire.modified(pathOf({ pathMtu, timeout: 0 }), QPState.RTR, 0);
        side.wire.modified(pathOf({ pathMtu, timeout: 0 }), QPState.RTS, 0);
        return side;
      }) as [TransportSide, TransportSide];
      Object.assign(pair, { a, b });
      post(pair, 0, write, 2048);
      pair.run();
      expect(b.user.memory.subarray(0, 2048).every((byte) => byte === 0)).toBe(true);
      if (type === QPType.rc)
        expect(a.user.failures).toEqual([MessageFailure.remoteInvalidRequest]);
    }
  });
});

describe('RC within a host', () => {
  it('answers a Read with whole packets, in the parts that were requested', () => {
    const pair = new TransportPair({}, { windowPackets: 8 }, WHOLE_BYTES);
    const sink = new Uint8Array(256 * 10);
    const message = { kind: readRequest, remoteStag: REMOTE_KEY, ...addressAt(0) };
    pair.a.user.work.push({ id: 0, message, sink });
    const spans: number[] = [];
    for (let round = 0; round < 4; round += 1) {
      for (const bytes of pair.a.pollAll(0)) pair.b.receive(bytes, 0);
      for (const bytes of pair.b.pollAll(0)) {
        spans.push(parsed(bytes).span);
        pair.a.receive(bytes, 0);
      }
    }
    expect(spans).toEqual([8, 2]);
    expect(pair.a.user.done).toHaveLength(1);
  });

  it('takes no Read response of another path MTU, though its length fits', () => {
    const pair = new TransportPair({}, { windowPackets: 4 }, WHOLE_BYTES);
    const [a, b] = [2, 1].map((pathMtu) => {
      const side = new TransportSide(65_536, { windowPackets: 4 }, WHOLE_BYTES);
      side.wire.modified(pathOf({ pathMtu }), QPState.RTR, 0);
      side.wire.modified(pathOf({ pathMtu }), QPState.RTS, 0);
      return side;
    }) as [TransportSide, TransportSide];
    Object.assign(pair, { a, b });
    const message = { kind: readRequest, remoteStag: REMOTE_KEY, ...addressAt(0) };
    a.user.work.push({ id: 0, message, sink: new Uint8Array(1024) });
    pair.run();
    expect(a.user.failures).toEqual([MessageFailure.badResponse]);
  });

  it('repeats only the rest of a message of which the receiver has the first packets', () => {
    const pair = new TransportPair({}, { windowPackets: 4 }, WHOLE_BYTES);
    post(pair, 0, write, 256 * 6);
    // The window allows four packets; their acknowledgement is lost.
    pair.pass(pair.a);
    expect(pair.lose(pair.b)).toBe(1);
    expect(pair.b.wire.rqPsn).toBe(104);
    // From now on packets leave one by one, or whole with another length.
    pair.expire(pair.a);
    const again = pair.a.poll(pair.now);
    expect(parsed(again)).toMatchObject({ psn: 100, span: 4 });
    if (again !== undefined) pair.b.receive(again, pair.now);
    pair.run();
    expect(pair.a.user.done).toHaveLength(1);
    expect(pair.b.wire.rqPsn).toBe(106);
  });

  it('refuses a Write with immediate data as a whole if no receive is posted', () => {
    const pair = new TransportPair({}, {}, WHOLE_BYTES);
    post(pair, 0, writeWithImmediate, 1000);
    pair.pass(pair.a);
    expect(pair.b.wire.rqPsn).toBe(100);
    expect(pair.b.user.memory[1]).toBe(0);
    pair.b.user.receives.push(1000);
    pair.pass(pair.b);
    pair.expire(pair.a);
    pair.run();
    expect(pair.b.user.memory[1]).toBe(3);
    expect(pair.a.user.done).toHaveLength(1);
  });
});
