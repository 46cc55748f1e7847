/** MPA's interface to the layers above it. */
import { describe, expect, it } from 'vitest';
import { bytesOf } from '#test/support/hex';
import { ModelUser } from '#test/support/model-user';
import { pattern } from '#test/support/pattern';
import { LiteralPeer, StreamPair, streamOf } from '#test/support/streams';

const STAG = 0x1234_5600;

/** Everything that a consumer sees of one exchange of messages of each kind. */
function exchange(crcRequested: boolean): unknown {
  const wishes = { crcRequested, mpaRevision: 2 } as const;
  const pair = new StreamPair({ initiator: wishes, responder: wishes }).establish();
  const memory = pair.b.user.register(STAG, 4096);
  const sink = pair.a.user.register(STAG, 4096);
  pair.b.user.postReceive(64);
  pair.a.user.write(pattern(2000), STAG, 16);
  pair.a.user.read(1500, [STAG, 16], [STAG, 0]);
  pair.a.user.send(pattern(40));
  pair.run();
  pair.a.stream.disconnect(pair.now);
  pair.run();
  const { a, b } = pair;
  return { memory, sink, log: [a.user.log, b.user.log], types: [a.types, b.types] };
}

describe('MPA and the layers above it', () => {
  it('Rev 1 at both ends is IETF version 1 of DDP and RDMAP on the wire [MPA-3-10]', () => {
    const user = new ModelUser();
    user.send(Uint8Array.of(0x41));
    const peer = LiteralPeer.ofInitiator({ mpaRevision: 1 }, user);
    expect(peer.take()).toEqual([expect.stringMatching(/^4143/)]);
    expect(peer.events[0]).toMatchObject({ type: 'established', revision: 1 });
  });

  it('a consumer sees no difference between CRCs and none [MPA-4.4-04]', () => {
    expect(exchange(true)).toEqual(exchange(false));
  });

  it('a lost connection, a bad CRC, a bad marker and a bad frame are codes 1 to 4 [MPA-8-01]', () => {
    const lost = LiteralPeer.ofResponder();
    lost.feed('c140 00000000 0000000000000000');
    lost.stream.handleClosed('ECONNRESET', 0);
    expect(lost.run().failure).toMatchObject({ layer: 2, etype: 0, code: 1 });

    const crc = LiteralPeer.ofResponder();
    crc.feed('c140 00000000 0000000000000000');
    crc.feedBytes(bytesOf('000e c140 00000000 0000000000000000 deadbeef'));
    expect(crc.failure).toMatchObject({ layer: 2, etype: 0, code: 2 });

    const marked = streamOf({ mpaRevision: 1, markersRequested: true, crcRequested: false });
    marked.connect(new Uint8Array(0), new ModelUser(), 0);
    marked.handleBytes(bytesOf('4d504120494420526570204672616d65 00 01 0000'), 0);
    marked.handleBytes(bytesOf('00000008 000e c140 00000000 0000000000000000 00000000'), 0);
    expect(failureOf(marked)).toMatchObject({ layer: 2, etype: 0, code: 3 });

    const frame = streamOf({ mpaRevision: 1 });
    frame.connect(new Uint8Array(0), new ModelUser(), 0);
    frame.handleBytes(bytesOf('4d504120494420526570204672616d65 40 01 0201'), 0);
    expect(failureOf(frame)).toMatchObject({ layer: 2, etype: 0, code: 4 });
  });

  it('after a bad CRC, RDMAP ends the stream: Terminate, then FIN [MPA-8-08]', () => {
    const peer = LiteralPeer.ofResponder();
    peer.feed('c140 00000000 0000000000000000');
    peer.feedBytes(bytesOf('000e c140 00000000 0000000000000000 deadbeef'));
    expect(peer.take()).toEqual([expect.stringMatching(/^4147.*20020000/)]);
    expect(peer.types.slice(2)).toEqual(['terminated', 'finish']);
  });
});

function failureOf(stream: ReturnType<typeof streamOf>): unknown {
  while (stream.pollTransmit() !== undefined);
  for (let event = stream.pollEvent(); event; event = stream.pollEvent()) {
    if ((event.type === 'closed' || event.type === 'terminated') && event.failure) {
      return event.failure;
    }
  }
  return undefined;
}
