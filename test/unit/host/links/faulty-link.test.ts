/** Faults around a link, over a simulated network whose time the test decides. */
import { describe, expect, it } from 'vitest';
import { transmitOf } from '#base/transmit';
import type { FaultSpec } from '#contract/protocol/faults';
import { Fault } from '#daemon/faults/fault';
import { FaultyLink } from '#daemon/host/links/faulty-link';
import type { LinkUser } from '#daemon/host/links/link';
import { TcpFrameReader } from '#daemon/iwarp/faults/frame';
import { StreamFaults } from '#daemon/iwarp/faults/stream-faults';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { streamOf } from '#test/support/fpdu-stream';
import { bytesOf, concat } from '#test/support/hex';
import { mpaReply, sendUlpdu } from '#test/support/mpa-frames';
import { Prng } from '#test/support/prng';
import { SimLink, type Wire } from '#test/support/sim-link';
import { VirtualClock, VirtualTime } from '#test/support/virtual-time';

const FACTS = { device: 'a', qpNum: 7, remote: { address: '10.0.1.1', port: 5 } };
const REPLY = Uint8Array.from(mpaReply());
const FPDU = streamOf([sendUlpdu(1, bytesOf('a1a2a3a4'))], false);

/** Records its reports, with their times. */
class Recorder implements LinkUser {
  readonly notified: string[] = [];
  readonly received: Uint8Array[] = [];
  flushedBytes = 0;
  readonly #time: VirtualTime;

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  handleBytes(bytes: Uint8Array): void {
    this.received.push(bytes.slice());
    this.#emit('bytes');
  }
  handleFlushed(bytes: number): void {
    this.flushedBytes += bytes;
  }
  handlePeerClosed(): void {
    this.#emit('peer closed');
  }
  handleClosed(errorCode: string | undefined): void {
    this.#emit(`closed ${errorCode ?? 'well'}`);
  }

  #emit(what: string): void {
    const late = this.#time.now > START + 50_000 ? 'late' : 'soon';
    if (this.notified.at(-1) !== `${what} ${late}`) this.notified.push(`${what} ${late}`);
  }
}

const START = new VirtualTime().now;

function wired(bufferBytes = 1_000_000) {
  const time = new VirtualTime();
  const clock = new VirtualClock(time, new Prng(1));
  const traits = { delayMin: 1, delayMax: 9, bufferBytes, deliverMax: 4096, emssBytes: 1460 };
  const wire: Wire = { time, prng: new Prng(7), traits, vanished: false };
  const [us, them] = ['10.0.0.1', '10.0.1.1'].map((localAddress, index, all) => {
    const remoteAddress = all[1 - index] ?? '';
    const ends = { localAddress, localPort: 5, remoteAddress, remotePort: 5 };
    return new SimLink(wire, ends, () => undefined);
  });
  if (us === undefined || them === undefined) throw new Error('two ends');
  SimLink.join(us, them);
  const user = new Recorder(time);
  const peer = new Recorder(time);
  let spent = 0;
  const fired: number[] = [];
  const link = new FaultyLink(us, {
    faults: new StreamFaults(new TcpFrameReader(0, 0), () => FACTS, crc32c),
    clock,
    framing: () => ({ crcEnabled: true, markers: false }),
    fire: (fault) => fired.push(fault.id),
    spent: () => {
      spent += 1;
    },
  });
  link.user = user;
  them.user = peer;
  us.open();
  them.open();
  const run = (micros = 10_000_000): void => {
    const end = time.now + micros;
    while (time.busy || (time.nextDue ?? Number.POSITIVE_INFINITY) <= end) time.step();
  };
  const face = (...specs: FaultSpec[]): void =>
    link.setFaults(specs.map((spec, index) => new Fault(index + 1, spec, undefined)));
  return { link, us, them, user, peer, run, face, fired, clock, spent: () => spent };
}

describe('a link with faults', () => {
  it('accepts every write at once, and sends the bytes when allowed, in order', () => {
    const { link, user, peer, run, face, clock } = wired(100);
    face({ kind: 'delay', ms: 60, direction: 'out' });
    const stream = concat(REPLY, FPDU, FPDU, FPDU);
    for (const bytes of [REPLY, FPDU, FPDU, FPDU]) {
      expect(link.writable).toBe(true);
      expect(link.write(transmitOf(bytes.slice()))).toBe(0);
    }
    expect(link.congested).toBe(false);
    run();
    expect(peer.notified).toEqual(['bytes late']);
    expect(concat(...peer.received)).toEqual(stream);
    expect(user.flushedBytes).toBe(stream.length);
    expect(clock.alarms).toBe(0);
  });

  it('sends its FIN after the bytes it holds back', () => {
    const { link, peer, run, face } = wired();
    face({ kind: 'delay', ms: 60, direction: 'out' });
    link.write(transmitOf(REPLY.slice()));
    link.finish();
    expect(link.writable).toBe(false);
    run();
    expect(peer.notified).toEqual(['bytes late', 'peer closed late']);
  });

  it('closes after the bytes that leave in time', () => {
    const { link, peer, run, face, user } = wired();
    face({ kind: 'delay', ms: 60, direction: 'out' });
    link.write(transmitOf(REPLY.slice()));
    link.close();
    run();
    expect(concat(...peer.received)).toEqual(REPLY);
    expect(peer.notified).toEqual(['bytes late', 'peer closed late']);
    expect(user.notified).toEqual(['closed well late']);
  });

  it('drops what arrives while it closes after bytes that leave in time', () => {
    const { link, them, peer, run, face, user } = wired();
    face({ kind: 'delay', ms: 60 });
    link.write(transmitOf(REPLY.slice()));
    link.close();
    them.write(transmitOf(FPDU));
    run(5000);
    link.assertInvariants();
    expect(link.heldBytes).toBe(REPLY.length);
    run();
    expect(user.received).toEqual([]);
    expect(concat(...peer.received)).toEqual(REPLY);
  });

  it('resets if bytes would never leave', () => {
    const { link, peer, run, face, clock } = wired();
    face({ kind: 'stall', direction: 'out' });
    link.write(transmitOf(REPLY.slice()));
    expect(link.congested).toBe(true);
    link.close();
    run();
    expect(peer.notified).toEqual(['closed ECONNRESET soon']);
    expect(clock.alarms).toBe(0);
  });

  it('delivers the end of the input after the input it holds back', () => {
    const { link, them, user, run, face } = wired();
    face({ kind: 'delay', ms: 60, direction: 'in' });
    them.write(transmitOf(FPDU));
    them.finish();
    link.finish();
    run();
    expect(concat(...user.received)).toEqual(FPDU);
    expect(user.notified).toEqual(['bytes late', 'peer closed late', 'closed well late']);
  });

  it.each(['in', 'out'] as const)(
    'reports an injected reset (%s) as one, though both ends have sent their last byte',
    (direction) => {
      const { link, them, user, peer, run, face } = wired();
      face({ kind: 'reset', afterBytes: 4, direction });
      link.write(transmitOf(REPLY.slice()));
      link.finish();
      if (direction === 'in') them.write(transmitOf(FPDU));
      them.finish();
      run();
      expect(user.notified.at(-1)).toBe('closed ECONNRESET soon');
      expect(peer.notified.at(-1)).toBe('closed ECONNRESET soon');
    },
  );

  it('drops held input when its user resets, and still reports the end', () => {
    const { link, them, user, run, face } = wired();
    face({ kind: 'stall', direction: 'in' });
    them.write(transmitOf(FPDU));
    them.finish();
    link.finish();
    run();
    expect(user.notified).toEqual([]);
    link.reset();
    run();
    expect(user.notified).toEqual(['closed well soon']);
  });

  it('delivers nothing to a user that does not read', () => {
    const { link, them, user, run, face } = wired();
    face({ kind: 'delay', ms: 1, direction: 'in' });
    them.write(transmitOf(FPDU));
    run(500);
    link.pauseReading();
    run(60_000);
    expect(user.notified).toEqual([]);
    link.resumeReading();
    run();
    expect(concat(...user.received)).toEqual(FPDU);
  });

  it('reports a fault on written bytes before the bytes leave', () => {
    const { link, fired, run, face, peer, user } = wired();
    face({ kind: 'qp-fatal', nth: 1 });
    link.write(transmitOf(REPLY.slice()));
    expect(fired).toEqual([]);
    link.write(transmitOf(FPDU.slice()));
    expect(fired).toEqual([1]);
    run();
    expect(concat(...peer.received)).toEqual(concat(REPLY, FPDU));
    expect(user.flushedBytes).toBe(0);
  });

  it('counts the bytes lost after the end that a fault causes', () => {
    const { link, run, face, peer } = wired();
    face({ kind: 'close', direction: 'out', afterBytes: REPLY.length });
    let takenBytes = link.write(transmitOf(REPLY.slice()));
    takenBytes += link.write(transmitOf(FPDU.slice()));
    takenBytes += link.write(transmitOf(FPDU.slice()));
    expect(takenBytes).toBe(REPLY.length + 2 * FPDU.length);
    run();
    expect(concat(...peer.received)).toEqual(REPLY);
    expect(peer.notified).toEqual(['bytes soon', 'peer closed soon']);
  });

  it('is spent, once, when its faults are removed and no effect of them remains', () => {
    const { link, run, face, spent, peer } = wired();
    face({ kind: 'stall', direction: 'out' });
    link.write(transmitOf(REPLY.slice()));
    run();
    expect([spent(), peer.received]).toEqual([0, []]);
    face();
    expect(spent()).toBe(1);
    run();
    face();
    expect([spent(), concat(...peer.received)]).toEqual([1, REPLY]);
  });
});
