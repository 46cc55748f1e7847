/** The initiator's nudge: an empty Write for a peer that is silent since its Reply. */
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { LiteralPeer } from '#test/support/streams';

const DELAY_MICROS = 100_000;
const EMPTY_WRITE = 'c140000000000000000000000000';
const SEND_OF_4 = '414300000000000000000000000100000000cafecafe';

function initiator(nudgeDelayMicros = DELAY_MICROS): LiteralPeer {
  return LiteralPeer.ofInitiator({ nudgeDelayMicros });
}

function send(peer: LiteralPeer): void {
  peer.user.send(Uint8Array.from([0xca, 0xfe, 0xca, 0xfe]));
  peer.run();
}

function waitUntil(peer: LiteralPeer, now: number): void {
  peer.now = now;
  peer.stream.handleDeadline(now);
  peer.run();
}

describe('a peer that has been silent since its Reply', () => {
  it('gets an empty Write, once, and the log gets the reason [DDP-5.2-10]', () => {
    const peer = initiator();
    send(peer);
    expect(peer.take()).toEqual([SEND_OF_4]);
    expect(peer.stream.nextDeadline()).toBe(DELAY_MICROS);
    waitUntil(peer, DELAY_MICROS - 1);
    expect(peer.take()).toEqual([]);
    waitUntil(peer, DELAY_MICROS);
    expect(peer.take()).toEqual([EMPTY_WRITE]);
    expect(peer.events).toContainEqual(
      expect.objectContaining({ type: 'nudged', quirk: 'siw-deaf-after-reply' }),
    );
    expect(peer.stream.nextDeadline()).toBe(NEVER);
    waitUntil(peer, 10 * DELAY_MICROS);
    expect(peer.take()).toEqual([]);
    // The next message follows as usual.
    send(peer);
    expect(peer.take()).toEqual([
      SEND_OF_4.replace('0000000100000000cafe', '0000000200000000cafe'),
    ]);
  });

  it('gets none if it was sent nothing that it could have missed', () => {
    const peer = initiator();
    waitUntil(peer, DELAY_MICROS);
    expect(peer.take()).toEqual([]);
    expect(peer.types).not.toContain('nudged');
    send(peer);
    waitUntil(peer, 2 * DELAY_MICROS);
    expect(peer.take()).toEqual([SEND_OF_4]);
  });

  it('gets none once it has sent something', () => {
    const peer = initiator();
    peer.user.postReceive(4);
    send(peer);
    peer.feed(SEND_OF_4);
    expect(peer.stream.nextDeadline()).toBe(NEVER);
    waitUntil(peer, DELAY_MICROS);
    expect(peer.take()).toEqual([SEND_OF_4]);
  });

  it('gets none after our FIN or our Terminate', () => {
    const closing = initiator();
    send(closing);
    closing.stream.disconnect(0);
    waitUntil(closing, DELAY_MICROS);
    expect(closing.take()).toEqual([SEND_OF_4]);

    const failed = initiator();
    failed.stream.fail({ kind: 'local', text: 'for the test' }, 0);
    failed.run();
    expect(failed.take()).toHaveLength(1);
    waitUntil(failed, DELAY_MICROS);
    expect(failed.take()).toEqual([]);
  });

  it('gets it between two messages, not within one', () => {
    const peer = LiteralPeer.ofInitiator({
      nudgeDelayMicros: DELAY_MICROS,
      fpduSize: { kind: 'fixed', mulpduBytes: 128 },
    });
    // The second segment must wait for its data.
    let fetched = false;
    peer.user.prepareGather = () => fetched || peer.user.jobCount === 2;
    peer.user.gather = () => {
      peer.user.prepareGather = () => fetched;
      return AccessRefusal.none;
    };
    peer.user.send(new Uint8Array(200));
    send(peer);
    const starts = (): string[] => peer.take().map((ulpdu) => ulpdu.slice(0, 4));
    expect(starts()).toEqual(['0143']);
    waitUntil(peer, DELAY_MICROS);
    expect(starts()).toEqual([]);
    fetched = true;
    peer.run();
    expect(starts()).toEqual(['4143', 'c140', '4143']);
  });

  it('is not detected by a responder, or when the nudge is switched off', () => {
    const responder = LiteralPeer.ofResponder({ nudgeDelayMicros: DELAY_MICROS });
    expect(responder.stream.nextDeadline()).toBe(NEVER);
    const off = LiteralPeer.ofInitiator();
    send(off);
    expect(off.stream.nextDeadline()).toBe(NEVER);
  });
});
