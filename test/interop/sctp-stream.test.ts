/** DDP and RDMAP over associations of libusrsctp: two streams of the engine, both in this process. */
import { afterEach, expect, it, onTestFinished } from 'vitest';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { NO_BYTES } from '../support/hex.ts';
import { describeWith } from '../support/prerequisites.ts';
import { Prng } from '../support/prng.ts';
import { BadNetwork, type RecordedEnd, SctpRig, until } from '../support/sctp-pair.ts';
import { SessionEnd } from '../support/session-end.ts';
import { streamOptions } from '../support/streams.ts';

const TARGET_STAG = 0x222;
const SINK_STAG = 0x333;
const WRITE_BYTES = 900_000;
const READ_BYTES = 300_000;
const SEED = 5043;

describeWith(['sctp'], 'DDP over SCTP by libusrsctp', () => {
  const rig = new SctpRig();

  afterEach(() => rig.close());

  /** A session on stream 0 of an end. */
  function sessionOf({ association, user }: RecordedEnd, pool: ChunkPool): SessionEnd {
    const options = streamOptions({
      emssBytes: association.messageMaxBytes,
      peerToPeer: true,
      startupTimeoutMicros: 20_000_000,
      closeTimeoutMicros: 20_000_000,
    });
    const end = new SessionEnd({ clock: rig.clock, pool, association, streamId: 0, options });
    association.user = {
      handleMessage: (_streamId, protocol, _unordered, bytes) => end.handleMessage(protocol, bytes),
      handleWritable: () => end.settle(),
      handleAcknowledged: () => end.handleAcknowledged(),
      handlePathChanged: () => {},
      handlePeerShutdown: () => {},
      handleEnded: (ended) => {
        user.handleEnded(ended);
        end.handleEnded(ended.code);
      },
    };
    return end;
  }

  /** Checks a Write, a Send, a Read, and a graceful end. */
  async function exchange(ends: readonly [RecordedEnd, RecordedEnd]) {
    const pool = new ChunkPool();
    const a = sessionOf(ends[0], pool);
    const b = sessionOf(ends[1], pool);
    const payload = new Uint8Array(WRITE_BYTES);
    new Prng(SEED).fill(payload);
    const target = b.user.register(TARGET_STAG, WRITE_BYTES);
    const sink = a.user.register(SINK_STAG, READ_BYTES);
    b.user.postReceive(65_536);
    b.stream.listen(rig.clock.now());
    b.onEvent = ({ type }) => {
      const now = rig.clock.now();
      if (type === 'request') b.stream.accept(NO_BYTES, b.user, { ird: 4, ord: 4 }, now);
      if (type === 'peer-closed') b.stream.disconnect(now);
    };
    a.onEvent = ({ type }) => {
      if (type !== 'established') return;
      a.user.write(payload, TARGET_STAG, 0);
      a.user.send(payload.subarray(0, 60_000));
      a.user.read(READ_BYTES, [TARGET_STAG, 0], [SINK_STAG, 0]);
      a.stream.disconnect(rig.clock.now());
    };
    a.stream.connect(NO_BYTES, a.user, rig.clock.now());
    a.settle();
    await until('both ends have closed', () => a.closed && b.closed);
    expect(a.failure).toBeUndefined();
    expect(b.failure).toBeUndefined();
    expect(Buffer.compare(target, payload)).toBe(0);
    expect(Buffer.compare(sink, payload.subarray(0, READ_BYTES))).toBe(0);
    expect(b.user.delivered.map(({ length }) => length)).toEqual([60_000]);
    expect(a.longestMessage).toBeLessThanOrEqual(ends[0].association.messageMaxBytes - 16);
    ends[0].association.shutdown();
    await until('SHUTDOWN is complete', () => ends.every(({ user }) => user.end !== undefined));
    expect(ends.map(({ user }) => user.end?.kind)).toEqual(['shutdown', 'shutdown']);
    expect(pool.inUseCount).toBe(0);
    return { a, b };
  }

  it('carries Write, Send and Read, and ends gracefully [SCTP-6.2-01, SCTP-9-03]', async () => {
    await exchange(await rig.pair());
  });

  it('loses and reorders nothing where the network does [SCTP-6.1-02, SCTP-10-02]', async () => {
    const prng = new Prng(SEED);
    const network = await BadNetwork.between(rig, () => ({
      copies: prng.oneIn(50) ? 0 : prng.oneIn(50) ? 2 : 1,
      late: prng.oneIn(5),
    }));
    onTestFinished(() => network.close());
    const { a, b } = await exchange(await rig.pair(rig.between));
    expect(network.lost + network.late).toBeGreaterThan(0);
    // Unless messages overtook each other, the resequencer had nothing to do.
    expect(a.heldMost + b.heldMost).toBeGreaterThan(0);
  });
});
