/** Associations of SCTP in UDP by libusrsctp, both ends in this process. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { afterEach, expect, it, vi } from 'vitest';
import { MESSAGE_MAX_BYTES } from '#daemon/host/sctp/association';
import { sctpStack } from '#daemon/host/sctp/sctp-stack';
import { UsrsctpTransport } from '#daemon/host/sctp/usrsctp-transport';
import { loadUsrsctp } from '#native-bridge/usrsctp/library';
import { describeWith } from '../support/prerequisites.ts';
import { Prng } from '../support/prng.ts';
import {
  BadNetwork,
  type RecordedEnd,
  SCTP_UDP_PORT,
  SctpRig,
  SEGMENT,
  until,
} from '../support/sctp-pair.ts';

/** Number `index`, then bytes that depend on it. */
function message(index: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 4; at < length; at += 1) bytes[at] = index * 7 + at;
  new DataView(bytes.buffer).setUint32(0, index);
  return bytes;
}

/** Vitest's own comparison takes a second for a long message. */
function isMessage(bytes: Uint8Array | undefined, index: number, length: number): boolean {
  return bytes !== undefined && Buffer.compare(bytes, message(index, length)) === 0;
}

function numbersOf({ user }: RecordedEnd): number[] {
  return user.messages.map(({ bytes }) => new DataView(bytes.buffer).getUint32(0));
}

/** Sends `count` messages, as there is room, and waits until the other end has them. */
async function sendAll(
  [from, to]: readonly [RecordedEnd, RecordedEnd],
  count: number,
  length: number,
): Promise<void> {
  let next = 0;
  const pump = () => {
    while (next < count) {
      if (!from.association.send(next % 4, SEGMENT, message(next, length))) return;
      next += 1;
    }
  };
  from.user.onWritable = pump;
  pump();
  await until('all messages have arrived', () => to.user.messages.length >= count);
}

describeWith(['sctp'], 'SCTP by libusrsctp', () => {
  const rig = new SctpRig();

  afterEach(() => {
    rig.close();
    vi.restoreAllMocks();
  });

  it('comes up with the indication of the peer and as many streams as both have [SCTP-11.1-01, SCTP-8-01]', async () => {
    const [mine, theirs] = await rig.pair();
    for (const { association } of [mine, theirs]) {
      expect(association).toMatchObject({ peerAdaptation: 1, streamCount: 4 });
      // Loopback has an MTU of 65,536.
      expect(association.messageMaxBytes).toBe(65_476);
    }
    expect(mine.association.remote).toEqual(theirs.association.local);
    expect(theirs.association.remote).toEqual(mine.association.local);
  });

  it('carries messages with stream, payload protocol and U flag, with their boundaries [SCTP-10-01, SCTP-5.2-01]', async () => {
    const [mine, theirs] = await rig.pair();
    const kinds = [
      { payloadProtocol: 16, unordered: true, acknowledgeAtOnce: false },
      { payloadProtocol: 17, unordered: true, acknowledgeAtOnce: true },
      { payloadProtocol: 0xffff_fffe, unordered: false, acknowledgeAtOnce: false },
    ];
    for (const [streamId, kind] of kinds.entries()) {
      const sent = message(streamId, 4 + streamId);
      expect(mine.association.send(streamId, kind, sent)).toBe(true);
      sent.fill(0xee);
    }
    await until('three messages', () => theirs.user.messages.length === 3);
    expect(theirs.user.messages).toEqual(
      kinds.map(({ payloadProtocol, unordered }, streamId) => {
        return { streamId, payloadProtocol, unordered, bytes: message(streamId, 4 + streamId) };
      }),
    );
    expect(mine.association.unacknowledged).toBe(true);
    await until('the acknowledgement', () => mine.user.events.includes('acknowledged'));
    expect(mine.association.unacknowledged).toBe(false);
  });

  it('bundles messages that others follow, and sends the last one at once', async () => {
    const [mine, theirs] = await rig.pair();
    const watcher = new UsrsctpTransport(rig.clock);
    let packets = 0;
    watcher.observe({
      watched: true,
      packet: (way, _socket, _peer, _port, { length }) => {
        if (way === 'out' && length > 1000) packets += 1;
      },
    });
    try {
      const count = 40;
      for (let index = 0; index < count; index += 1) {
        mine.association.send(0, { ...SEGMENT, followed: index < count - 1 }, message(index, 1000));
      }
      await until('all messages', () => theirs.user.messages.length === count);
    } finally {
      watcher.close();
    }
    // The first is sent at once, since none is in flight; an acknowledgement may release some.
    expect(packets).toBeGreaterThan(0);
    expect(packets).toBeLessThan(10);
    expect(numbersOf(theirs)).toEqual(Array.from({ length: 40 }, (_, index) => index));
  });

  it('sends four long packets at a time within one turn', async () => {
    const [mine, theirs] = await rig.pair();
    const { counters } = sctpStack(rig.clock).carrier;
    const before = { ...counters };
    const { messageMaxBytes } = mine.association;
    for (let index = 0; index < 6; index += 1) {
      mine.association.send(0, SEGMENT, message(index, messageMaxBytes));
    }
    expect(counters.sendCalls - before.sendCalls).toBe(1);
    expect(counters.packetsOut - before.packetsOut).toBe(4);
    await until('all messages', () => theirs.user.messages.length === 6);
    expect(numbersOf(theirs)).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it('puts the longest unfragmented message into one packet, and assembles longer ones [SCTP-9-02]', async () => {
    const [mine, theirs] = await rig.pair();
    for (const length of [mine.association.messageMaxBytes, MESSAGE_MAX_BYTES]) {
      mine.association.send(1, SEGMENT, message(length, length));
      await until('the message', () => theirs.user.messages.length > 0);
      const [{ bytes } = { bytes: undefined }] = theirs.user.messages.splice(0);
      expect(isMessage(bytes, length, length)).toBe(true);
    }
  });

  it('is aborted by an oversized message', async () => {
    const [mine, theirs] = await rig.pair();
    mine.association.send(1, SEGMENT, new Uint8Array(MESSAGE_MAX_BYTES + 1));
    await until('both ends know', () => (mine.user.end && theirs.user.end) !== undefined);
    expect(theirs.user.end).toMatchObject({ kind: 'invalid', code: 'EMSGSIZE' });
    expect(mine.user.end).toMatchObject({ kind: 'aborted', code: 'ECONNRESET' });
    expect(theirs.user.messages).toEqual([]);
  });

  it('rejects messages without room, and reports when there is room', async () => {
    const [mine, theirs] = await rig.pair();
    theirs.association.pauseReading();
    let taken = 0;
    while (mine.association.send(0, SEGMENT, message(taken, 30_000))) taken += 1;
    expect(taken).toBeGreaterThan(10);
    expect(taken * 30_000).toBeLessThan(4_194_304);
    theirs.association.resumeReading();
    await until('room again', () => mine.user.events.includes('writable'));
    await until('all that was taken', () => theirs.user.messages.length === taken);
    expect(numbersOf(theirs)).toEqual(Array.from({ length: taken }, (_, index) => index));
  });

  it('reports room to send while reading is paused', async () => {
    const [mine, theirs] = await rig.pair();
    mine.association.pauseReading();
    theirs.association.send(0, SEGMENT, message(0, 8));
    let next = 0;
    while (mine.association.send(0, SEGMENT, message(next, 60_000))) next += 1;
    await until('room', () => mine.user.events.includes('writable'));
    // There may not yet be room for such a long message.
    await until('enough', () => mine.association.send(0, SEGMENT, message(next, 60_000)));
    await until('all messages', () => theirs.user.messages.length === next + 1);
    expect(mine.user.messages).toEqual([]);
  });

  it('keeps messages while reading is paused', async () => {
    const [mine, theirs] = await rig.pair();
    theirs.association.pauseReading();
    mine.association.send(0, { ...SEGMENT, acknowledgeAtOnce: true }, message(1, 100));
    await until('the acknowledgement', () => mine.user.events.includes('acknowledged'));
    expect(theirs.user.messages).toEqual([]);
    theirs.association.resumeReading();
    await until('the message', () => theirs.user.messages.length === 1);
  });

  it('shuts down after everything that was sent', async () => {
    const [mine, theirs] = await rig.pair();
    for (let index = 0; index < 20; index += 1) {
      mine.association.send(0, SEGMENT, message(index, 20_000));
    }
    mine.association.shutdown();
    await until('both ends know', () => (mine.user.end && theirs.user.end) !== undefined);
    expect(theirs.user.messages.length).toBe(20);
    expect(theirs.user.events).toEqual(['peer-shutdown', 'shutdown']);
    expect(mine.user.end?.kind).toBe('shutdown');
  });

  it('ends at once by an ABORT, reported to the peer only', async () => {
    const [mine, theirs] = await rig.pair();
    theirs.association.abort();
    await until('the peer knows', () => mine.user.end !== undefined);
    expect(mine.user.end).toMatchObject({ kind: 'aborted', code: 'ECONNRESET' });
    expect(theirs.user.events).toEqual([]);
    expect(theirs.association.send(0, SEGMENT, message(0, 10))).toBe(false);
  });

  it('is refused without a listener, or with another indication [SCTP-7.1-01]', async () => {
    const listener = rig.listen();
    // It keeps the UDP port open.
    rig.hold(rig.there);
    const mine = rig.hold(rig.here);
    await expect(rig.open(mine, rig.there, listener.port ^ 1)).rejects.toThrow('ECONNREFUSED');
    const other = rig.hold(rig.here, 0, 7);
    await expect(rig.open(other, rig.there, listener.port)).rejects.toThrow('ECONNREFUSED');
    listener.release();
    await expect(rig.open(mine, rig.there, listener.port)).rejects.toThrow('ECONNREFUSED');
    expect(rig.accepted).toEqual([]);
  });

  it('is refused at once where the UDP port is not open, again and again', async () => {
    const mine = rig.hold(rig.here);
    const text = `ECONNREFUSED: UDP port 9899 of ${rig.there} cannot be reached (ECONNREFUSED)`;
    for (let attempt = 0; attempt < 3; attempt += 1) {
      await expect(rig.open(mine, rig.there, 7174)).rejects.toThrow(text);
    }
    // The socket that had the errors still works.
    const listener = rig.listen();
    await rig.open(mine, rig.there, listener.port);
  });

  it('listens on a free port from which no association of another address was opened', async () => {
    vi.spyOn(rig.clock, 'random32').mockReturnValue(7);
    const mine = rig.hold(rig.here);
    const { association } = await rig.open(mine, rig.there, rig.listen().port);
    expect(rig.listen().port).not.toBe(association.local.port);
    // The association has the port longer than its id.
    mine.release();
    expect(rig.listen().port).not.toBe(association.local.port);
  });

  it('reports an SCTP or UDP port in use', async () => {
    const { port } = rig.listen();
    expect(() => rig.hold(rig.there, port)).toThrow(/EADDRINUSE|taken/);
    // Another address has its own ports.
    expect(rig.hold(rig.here, port).port).toBe(port);
    const taken = createSocket('udp4').bind(SCTP_UDP_PORT, rig.between);
    await once(taken, 'listening');
    expect(() => rig.hold(rig.between)).toThrow(
      expect.objectContaining({
        code: 'EADDRINUSE',
        message: `UDP port 9899 of ${rig.between}, which carries SCTP, is taken: another daemon or the kernel (net.sctp.udp_port) has it; stop that one, or give the device another address`,
      }),
    );
    taken.close();
  });

  it('opens, uses and closes 200 associations between two ports', async () => {
    const listener = rig.listen();
    const opened = await Promise.all(
      Array.from({ length: 200 }, () => rig.open(rig.hold(rig.here), rig.there, listener.port)),
    );
    for (const [index, { association }] of opened.entries()) {
      association.send(0, SEGMENT, message(index, 50));
    }
    await until('a message for each', () =>
      rig.accepted.every(({ user }) => user.messages.length === 1),
    );
    const numbers = rig.accepted.flatMap(numbersOf).sort((a, b) => a - b);
    expect(numbers).toEqual(Array.from({ length: 200 }, (_, index) => index));
    for (const { association } of opened) association.shutdown();
    await until('the end of each', () => opened.every(({ user }) => user.end !== undefined));
  });

  it('delivers everything once when datagrams are lost, duplicated and reordered', async () => {
    const prng = new Prng(5);
    const network = await BadNetwork.between(rig, () => {
      return { copies: prng.oneIn(50) ? 0 : prng.oneIn(50) ? 2 : 1, late: prng.oneIn(10) };
    });
    const ends = await rig.pair(rig.between);
    await sendAll(ends, 3000, 3000);
    const numbers = numbersOf(ends[1]);
    const expected = Array.from({ length: 3000 }, (_, index) => index);
    expect(numbers).not.toEqual(expected);
    expect(numbers.toSorted((a, b) => a - b)).toEqual(expected);
    for (const [at, index] of numbers.entries()) {
      expect(isMessage(ends[1].user.messages[at]?.bytes, index, 3000), `${index}`).toBe(true);
    }
    expect(network.lost).toBeGreaterThan(0);
    expect(network.late).toBeGreaterThan(0);
    network.close();
  });

  it('names the package when the library is missing, and rejects one that is too old', () => {
    expect(() => loadUsrsctp('libnothing-of-this-name.so')).toThrow(
      expect.objectContaining({
        code: 'EPROTONOSUPPORT',
        reason: 'missing',
        message: expect.stringContaining('apt-get install libusrsctp2'),
      }),
    );
    expect(() => loadUsrsctp('libm.so.6')).toThrow(
      expect.objectContaining({ code: 'EPROTONOSUPPORT', reason: 'unsuitable' }),
    );
  });
});
