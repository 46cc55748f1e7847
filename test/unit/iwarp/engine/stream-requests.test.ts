/** Reads and atomics: one stream against literal bytes, as requester and as responder. */
import { beforeEach, describe, expect, it } from 'vitest';
import { hexOf } from '#test/support/hex';
import { ModelUser } from '#test/support/model-user';
import { pattern } from '#test/support/pattern';
import { compact, LiteralPeer } from '#test/support/streams';

function request(msn: number, header: string, opcode = '41'): string {
  return compact(`41${opcode} 00000000 00000001 ${hex32(msn)} 00000000 ${header}`);
}

function response(control: string, to: string, payload = ''): string {
  return compact(`${control}42 11223344 ${to} ${payload}`);
}

function hex32(value: number): string {
  return value.toString(16).padStart(8, '0');
}

/** A requester with one Read of `size` bytes outstanding, to STag 0x11223344 from TO 0x1000 on. */
function reading(size: number, count = 1): LiteralPeer {
  const user = new ModelUser();
  user.register(0x11223344, 0x1000, 0x1000);
  for (let i = 0; i < count; i++) user.read(size, [0x55667788, 0x2000], [0x11223344, 0x1000]);
  const peer = LiteralPeer.ofInitiator({}, user);
  expect(peer.take().length).toBe(count);
  return peer;
}

function controlOf(ulpdu: string | undefined): string | undefined {
  return ulpdu?.slice(0, 4) === '4147' ? ulpdu.slice(36, 44) : undefined;
}

let user: ModelUser;

beforeEach(() => {
  user = new ModelUser();
});

describe('a requester', () => {
  it('sends the Read Request [RDMAP-4.4-01, RDMAP-5.2.1-01, RDMAP-5.2.1-06, RDMAP-3.2-04, RDMAP-4.1-09]', () => {
    user.read(4096, [0x55667788, 0x2000], [0x11223344, 0x1000]);
    const peer = LiteralPeer.ofInitiator({}, user);
    expect(peer.take()).toEqual([
      request(1, '11223344 0000000000001000 00001000 55667788 0000000000002000'),
    ]);
    expect(user.log).toEqual(['sent']);
  });

  it('completes with the last segment, not before [RDMAP-5.2.2-04, RDMAP-5.5-13, RDMAP-5.5-05]', () => {
    const peer = reading(4);
    peer.feed(response('81', '0000000000001000', '4142'));
    expect(peer.user.log).toEqual(['sent']);
    peer.feed(response('81', '0000000000001002', '4344'));
    expect(peer.user.log).toEqual(['sent']);
    // DDP-5.2-14: a last segment without payload closes the message.
    peer.feed(response('c1', '0000000000000000'));
    expect(peer.user.log).toEqual(['sent', 'read']);
    expect(hexOf(peer.user.regions.get(0x11223344)?.bytes.subarray(0, 5) ?? new Uint8Array())).toBe(
      '4142434400',
    );
    expect(peer.take()).toEqual([]);
  });

  it('the first Response completes the first of two equal Reads [RDMAP-5.5-14, RDMAP-5.2-01]', () => {
    const peer = reading(2, 2);
    peer.feed(response('c1', '0000000000001000', '4142'));
    expect(peer.user.log).toEqual(['sent', 'sent', 'read']);
    peer.feed(response('c1', '0000000000001000', '4344'));
    expect(peer.user.log).toEqual(['sent', 'sent', 'read', 'read']);
  });

  it('a Response to another STag [RDMAP-5.2.2-06, RDMAP-4.8-33]', () => {
    const peer = reading(2);
    peer.user.register(0x22, 0x2000);
    peer.feed('c142 00000022 0000000000001000 4142');
    expect(peer.take().map(controlOf)).toEqual(['1100c000']);
    expect(peer.user.placements).toBe(0);
  });

  it('a Response at another TO [RDMAP-5.2.2-06]', () => {
    for (const to of ['0000000000001001', '0000000100001000']) {
      const peer = reading(2);
      peer.feed(response('c1', to, '4142'));
      expect(peer.take().map(controlOf)).toEqual(['1101c000']);
      expect(peer.user.placements).toBe(0);
    }
    const peer = reading(4);
    peer.feed(response('81', '0000000000001000', '4142'), response('c1', '0000000000001003', '43'));
    expect(peer.take().map(controlOf)).toEqual(['1101c000']);
  });

  it('a Response longer than its Read, in one segment or in the last [RDMAP-5.2.2-06]', () => {
    const peer = reading(2);
    peer.feed(response('c1', '0000000000001000', '414243'));
    expect(peer.take().map(controlOf)).toEqual(['1101c000']);
    expect(peer.user.placements).toBe(0);
    const later = reading(3);
    later.feed(response('81', '0000000000001000', '4142'));
    later.feed(response('c1', '0000000000001002', '4344'));
    expect(later.take().map(controlOf)).toEqual(['1101c000']);
    expect(later.user.placements).toBe(1);
    expect(later.user.log).toEqual(['sent']);
  });

  it('a Response shorter than its Read [RDMAP-5.2.2-06]', () => {
    const peer = reading(10).feed(response('c1', '0000000000001000', '4142'));
    expect(peer.take().map(controlOf)).toEqual(['1101c000']);
    expect(peer.user.log).toEqual(['sent']);
  });

  it('a Response without a last segment, followed by the next one [RDMAP-5.2.2-06]', () => {
    const peer = reading(2, 2);
    peer.feed(response('81', '0000000000001000', '4142'));
    peer.feed(response('c1', '0000000000001000', '4344'));
    expect(peer.take().map(controlOf)).toEqual(['1101c000']);
    expect(peer.user.log).toEqual(['sent', 'sent']);
  });

  it('STag and TO of a Response without payload are ignored [DDP-5.2-11]', () => {
    const peer = reading(0).feed('c142 deadbeef ffffffffffffffff');
    expect(peer.user.log).toEqual(['sent', 'read']);
    expect(peer.user.placements).toBe(0);
  });

  it('a sink that the RNIC refuses is a DDP error [RDMAP-5.2.2-07, RDMAP-4.4-03]', () => {
    const peer = reading(2);
    peer.user.regions.delete(0x11223344);
    peer.feed(response('c1', '0000000000001000', '4142'));
    expect(peer.take().map(controlOf)).toEqual(['1100c000']);
  });

  it('names the siw bug in a queued Read of no bytes', () => {
    const peer = reading(0).feed(response('c1', '0000000000001000', '41*400'));
    expect(peer.failure).toMatchObject({ layer: 1, quirk: 'siw-queued-zero-length-read' });
  });

  it('requests beyond ORD wait, and so do all after them [RDMAP-6.1-03, RDMAP-5.5-09, RDMAP-6.1-02]', () => {
    user.register(0x11223344, 0x1000, 0x1000);
    for (let i = 0; i < 3; i++) user.read(1, [0x55667788, 0x2000], [0x11223344, 0x1000]);
    user.send(new Uint8Array(1));
    const peer = LiteralPeer.ofInitiator({ ord: 2 }, user);
    expect(peer.take().map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['4141', '4141']);
    peer.feed(response('c1', '0000000000001000', '41'));
    expect(peer.take().map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['4141', '4143']);
    peer.feed(response('c1', '0000000000001000', '41'), response('c1', '0000000000001000', '41'));
    expect(user.log.filter((entry) => entry === 'read').length).toBe(3);
  });

  it('a Send after a Read is not held back [RDMAP-5.5-08, RDMAP-5.5-01]', () => {
    user.read(1, [0x55667788, 0x2000], [0x11223344, 0x1000]);
    user.send(Uint8Array.of(0x41));
    const peer = LiteralPeer.ofInitiator({}, user);
    expect(peer.take().map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['4141', '4143']);
  });

  it('sends Atomic Requests [RDMAPX-5.2.1-01, RDMAPX-5.2.1-02, RDMAPX-5.2.1-06, RDMAPX-5-04, RDMAPX-5.2.1-08]', () => {
    user.read(0, [0, 0], [0, 0]);
    user.fetchAdd(1n, 0x11223344, 0x1008);
    user.compareSwap(1n, 0xaan, 0x11223344, 0x1008);
    const peer = LiteralPeer.ofInitiator({}, user);
    expect(peer.take()).toEqual([
      request(1, '00'.repeat(28)),
      request(
        2,
        `00000000 00000000 11223344 0000000000001008 0000000000000001 ${'00'.repeat(16)} ffffffffffffffff`,
        '4a',
      ),
      request(
        3,
        '00000002 00000001 11223344 0000000000001008 00000000000000aa ffffffffffffffff 0000000000000001 ffffffffffffffff',
        '4a',
      ),
    ]);
    peer.feed(
      'c142 00000000 0000000000000000',
      '414b 00000000 00000003 00000001 00000000 00000000 000000000000002a',
      '414b cafe0001 00000003 00000002 00000000 00000001 ffffffff00000000',
    );
    expect(user.log.slice(3)).toEqual(['read', 'atomic 2a', 'atomic ffffffff00000000']);
    expect(peer.take()).toEqual([]);
  });

  it('Atomic Responses that do not fit [RDMAPX-5.2.1-04, RDMAPX-5.2.2-06, RDMAPX-5-03]', () => {
    const outstanding = (): LiteralPeer => {
      const user = new ModelUser();
      user.fetchAdd(1n, 0x11223344, 0x1008);
      const peer = LiteralPeer.ofInitiator({}, user);
      peer.take();
      return peer;
    };
    const head = '414b 00000000 00000003 00000001 00000000';
    for (const [ulpdu, control] of [
      [`${head} 00000001 000000000000002a`, '02ffc000'],
      [`${head} 00000000 000000000000`, '02ffc000'],
      [`${head} 00000000 000000000000002a00`, '1205c000'],
      ['414b 00000000 00000003 00000002 00000000 00000000 000000000000002a', '1203c000'],
      ['c142 00000000 0000000000000000', '0206c000'],
    ] as const) {
      const peer = outstanding().feed(ulpdu);
      expect(peer.take().map(controlOf)).toEqual([control]);
      expect(peer.user.log).toEqual(['sent']);
    }
    // A Read is the oldest: an Atomic Response cannot be next.
    const peer = reading(2).feed(`${head} 00000000 000000000000002a`);
    expect(peer.take().map(controlOf)).toEqual(['0206c000']);
  });

  it('an atomic completes with its Response, and never without [RDMAPX-5.4-01]', () => {
    user.fetchAdd(1n, 0x11223344, 0x1008);
    const peer = LiteralPeer.ofInitiator({}, user);
    peer.run().finish();
    expect(user.log).toEqual(['sent']);
    peer.stream.handleClosed('ECONNRESET', 0);
    peer.run();
    expect(user.log).toEqual(['sent']);
  });

  it('Reads and atomics share ORD [RDMAPX-5.2-01, RDMAPX-5.2.2-04]', () => {
    user.fetchAdd(1n, 0x11223344, 0x1008);
    user.read(0, [0, 0], [0, 0]);
    user.fetchAdd(1n, 0x11223344, 0x1008);
    const peer = LiteralPeer.ofInitiator({ ord: 2 }, user);
    expect(peer.take().map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['414a', '4141']);
    peer.feed(
      '414b 00000000 00000003 00000001 00000000 00000000 000000000000002a',
      'c142 00000000 0000000000000000',
    );
    expect(peer.take().map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['414a']);
  });
});

describe('a responder', () => {
  function serving(change = {}): LiteralPeer {
    const user = new ModelUser();
    user.register(0x55667788, 0x1000, 0x2000).set(pattern(0x1000));
    return LiteralPeer.ofResponder(change, user);
  }

  function payloadAt(offset: number, length: number): string {
    return hexOf(pattern(0x1000).subarray(offset, offset + length));
  }

  it('cuts the Response [RDMAP-5.2.2-01, RDMAP-4.4-02, RDMAP-5.2.1-07, DDP-4.2-02]', () => {
    const peer = serving({ fpduSize: { kind: 'fixed', mulpduBytes: 1442 } as const });
    peer.feed(request(1, '11223344 0000000000001000 00000bb8 55667788 0000000000002000'));
    expect(peer.take()).toEqual([
      response('81', '0000000000001000', payloadAt(0, 1428)),
      response('81', '0000000000001594', payloadAt(1428, 1428)),
      response('c1', '0000000000001b28', payloadAt(2856, 144)),
    ]);
    expect(peer.user.log).toEqual([]);
    expect(peer.user.delivered).toEqual([]);
  });

  it('the sink of a Read Request is copied without a check [RDMAP-4.4-03]', () => {
    const peer = serving();
    peer.feed(request(1, 'ffffffff fffffffffffffffe 00000004 55667788 0000000000002003'));
    expect(peer.take()).toEqual([compact(`c142 ffffffff fffffffffffffffe ${payloadAt(3, 4)}`)]);
  });

  it('a Read of no bytes [RDMAP-5.2.1-10, RDMAP-5.2.1-11, RDMAP-5.2.1-08]', () => {
    const peer = serving();
    peer.feed(request(1, '11223344 0000000000001000 00000000 deadbeef ffffffffffffffff'));
    expect(peer.take()).toEqual([compact('c142 11223344 0000000000001000')]);
  });

  it('answers in the order of the Requests [RDMAP-5.2.1-05, RDMAP-5.2.2-05, RDMAP-5.2.1-02, RDMAP-5.2.1-03]', () => {
    const peer = serving();
    const requests = Array.from({ length: 8 }, (_, i) =>
      request(i + 1, `0000000${i} 0000000000000000 0000000${i} 55667788 0000000000002000`),
    );
    peer.feed(...requests);
    expect(peer.take().map((ulpdu) => ulpdu.slice(0, 12))).toEqual(
      requests.map((_, i) => `c1420000000${i}`),
    );
  });

  it('the slot of a Read is free once its last segment is sent [RDMAP-5.2.2-03, RDMAP-5.2.2-02]', () => {
    const peer = serving({ ird: 1 });
    for (let msn = 1; msn <= 100; msn++) {
      peer.feed(request(msn, '11223344 0000000000001000 00000001 55667788 0000000000002000'));
      expect(peer.take().length).toBe(1);
    }
    expect(peer.types).toEqual(['request', 'established']);
  });

  it('a Read Request in several segments [DDP-5.2-14, DDP-5.4-02]', () => {
    const peer = serving();
    peer.feed(
      '0141 00000000 00000001 00000001 00000000 11223344 00000000',
      '0141 00000000 00000001 00000001 00000008 00001000 00000001 55667788',
    );
    expect(peer.take()).toEqual([]);
    peer.feed('4141 00000000 00000001 00000001 00000014 00000000 00002000');
    expect(peer.take()).toEqual([response('c1', '0000000000001000', payloadAt(0, 1))]);
  });

  it('a Read Request in several segments that gets too long [RDMAP-4.4-06]', () => {
    const peer = serving().feed(
      '0141 00000000 00000001 00000001 00000000 00*40',
      '0141 00000000 00000001 00000001 00000028 00*40',
    );
    expect(peer.take().map(controlOf)).toEqual(['1205c000']);
    const last = serving().feed(
      '0141 00000000 00000001 00000001 00000000 00*40',
      '4141 00000000 00000001 00000001 00000028 00*40',
    );
    expect(last.take().map(controlOf)).toEqual(['1205c000']);
  });

  it('a peer that fills its slots takes none of another stream [SEC-6.4.3.3-01, SEC-6.4.3.1-02]', () => {
    const full = serving({ ird: 1 });
    full.user.stallSource = Number.POSITIVE_INFINITY;
    const other = serving({ ird: 1 });
    const read = request(1, '11223344 0000000000001000 00000001 55667788 0000000000002000');
    full.feed(read);
    other.feed(read);
    expect(full.take()).toEqual([]);
    expect(other.take().length).toBe(1);
    full.feed(request(2, '11223344 0000000000001000 00000001 55667788 0000000000002000'));
    expect(full.take().map(controlOf)).toEqual(['1202c000']);
    other.feed(request(2, '11223344 0000000000001000 00000001 55667788 0000000000002000'));
    expect(other.take().length).toBe(1);
  });

  it('a Read waits for a Send that it is interleaved with [RDMAP-5.5-06, DDP-5.4-02, RDMAPX-5.4-02, RDMAPX-7-02]', () => {
    const peer = serving();
    peer.user.postReceive(8);
    peer.feed('0143 00000000 00000000 00000001 00000000 41');
    peer.feed(request(1, '11223344 0000000000001000 00000001 55667788 0000000000002000'));
    expect(peer.take()).toEqual([]);
    peer.feed('4143 00000000 00000000 00000001 00000001 42');
    expect(peer.user.delivered.length).toBe(1);
    expect(peer.take()).toEqual([response('c1', '0000000000001000', payloadAt(0, 1))]);
  });

  it('answers an Atomic Request [RDMAPX-5.2.2-01, RDMAPX-5.2.2-02, RDMAPX-5.2.1-09, RDMAPX-5.2.1-12]', () => {
    const memory = user.register(0x11223344, 64, 0x1000);
    memory[8] = 0x2a;
    const peer = LiteralPeer.ofResponder({}, user);
    peer.feed(
      request(
        1,
        `00000000 00000007 11223344 0000000000001008 0000000000000001 ${'00'.repeat(16)} ${'ff'.repeat(8)}`,
        '4a',
      ),
    );
    expect(peer.take()).toEqual([
      compact('414b 00000000 00000003 00000001 00000000 00000007 000000000000002a'),
    ]);
    expect(memory[8]).toBe(0x2b);
    expect(user.delivered).toEqual([]);
  });

  it('ignores unused fields [RDMAPX-5.2.1-03, RDMAPX-4.1-03, RDMAPX-5.2.1-06]', () => {
    user.register(0x11223344, 64, 0x1000);
    user.register(0xcafe0001, 64);
    user.postReceive(64);
    const peer = LiteralPeer.ofResponder({}, user);
    peer.feed(
      `414a cafe0001 00000001 00000001 00000000 fffffff0 ffffffff 11223344 0000000000001008 0000000000000001 00*8 77*16`,
      '4148 cafe0001 00000000 00000001 00000000 0102030405060708',
    );
    expect(peer.take()).toEqual([
      compact('414b 00000000 00000003 00000001 00000000 ffffffff 0000000000000000'),
    ]);
    expect(user.delivered[0]?.immediate).toBe('0102030405060708');
    expect(user.regions.has(0xcafe0001)).toBe(true);
  });

  it('Reads and atomics in order [RDMAPX-7-05, RDMAPX-5.2.1-11, RDMAPX-5.2.2-07, RDMAPX-5.4-04]', () => {
    user.register(0x11223344, 64, 0x1000);
    const peer = LiteralPeer.ofResponder({}, user);
    const read = (msn: number): string =>
      request(msn, '00000001 0000000000000000 00000008 11223344 0000000000001000');
    const swap = (msn: number, from: number, to: number): string =>
      request(
        msn,
        `00000002 ${hex32(msn)} 11223344 0000000000001000 ${hex32(0)}${hex32(to)} ${'ff'.repeat(8)} ${hex32(0)}${hex32(from)} ${'ff'.repeat(8)}`,
        '4a',
      );
    peer.feed(read(1), swap(2, 0, 1), swap(3, 1, 2), swap(4, 2, 3), read(5));
    const answers = peer.take();
    expect(answers.map((ulpdu) => ulpdu.slice(0, 4))).toEqual(
      'c142 414b 414b 414b c142'.split(' '),
    );
    expect(answers.slice(1, 4).map((ulpdu) => ulpdu.slice(36))).toEqual([
      '000000020000000000000000',
      '000000030000000000000001',
      '000000040000000000000002',
    ]);
    expect(answers[0]?.slice(28)).toBe('0000000000000000');
    expect(answers[4]?.slice(28)).toBe('0300000000000000');
  });

  it('Reads and atomics share IRD [RDMAPX-5.2.2-03]', () => {
    user.register(0x11223344, 64, 0x1000);
    user.stallSource = Number.POSITIVE_INFINITY;
    const peer = LiteralPeer.ofResponder({ ird: 2 }, user);
    const atomic = (msn: number): string =>
      request(msn, `00000000 00000007 11223344 0000000000001008 ${'00'.repeat(32)}`, '4a');
    peer.feed(request(1, '00000001 0000000000000000 00000008 11223344 0000000000001000'));
    peer.feed(atomic(2));
    expect(peer.take()).toEqual([]);
    peer.feed(atomic(3));
    expect(peer.take().map(controlOf)).toEqual(['1202c000']);
  });
});
