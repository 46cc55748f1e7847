/**
 * One stream against literal bytes that break a rule: which Terminate answers, and that nothing
 * was placed. The stream is the responder unless a test says otherwise.
 */
import { describe, expect, it } from 'vitest';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { bytesOf, hexOf } from '#test/support/hex';
import { ModelUser } from '#test/support/model-user';
import { copying } from '#test/support/raw-fpdu';
import { compact, LiteralPeer } from '#test/support/streams';

/** The segment of a Terminate with this control word and these copies. */
function terminate(payload: string): string {
  return compact(`4147 00000000 00000002 00000001 00000000 ${payload}`);
}

/** STag 0x11223344, TO 0x1000 to 0x1fff, is registered; a receive of 64 bytes is posted. */
function peerWithMemory(change = {}): LiteralPeer {
  const user = new ModelUser();
  user.register(0x11223344, 0x1000, 0x1000);
  user.postReceive(64);
  return LiteralPeer.ofResponder(change, user);
}

function memoryOf(peer: LiteralPeer): string {
  return hexOf(peer.user.regions.get(0x11223344)?.bytes ?? new Uint8Array(0));
}

/** Feeds `ulpdu`; expects exactly one Terminate, nothing placed and nothing delivered. */
function expectTerminate(ulpdu: string, payload: string, peer = peerWithMemory()): LiteralPeer {
  const before = memoryOf(peer);
  peer.take();
  const delivered = peer.user.delivered.length;
  peer.feed(ulpdu);
  expect(peer.take()).toEqual([terminate(payload)]);
  expect(memoryOf(peer)).toBe(before);
  expect(peer.user.delivered.length).toBe(delivered);
  expect(peer.types.slice(-2)).toEqual(['terminated', 'finish']);
  return peer;
}

/** As `expectTerminate`, for a Terminate that copies the segment's length and DDP header. */
function expectCopying(control: string, ulpdu: string, peer?: LiteralPeer): void {
  expectTerminate(ulpdu, copying(control, ulpdu), peer);
}

const SEND = '4143 00000000 00000000 00000001 00000000';
const READ = '4141 00000000 00000001 00000001 00000000';
const ATOMIC = '414a 00000000 00000001 00000001 00000000';

describe('DDP errors', () => {
  it('a queue that does not exist [DDP-7.1-01, DDP-7.1-18, DDP-7.1-16, RDMAP-4.8-06]', () => {
    const ulpdu = '4143 00000000 00000005 00000001 00000000 41424344';
    expectTerminate(ulpdu, '1201c000 0016 414300000000000000050000000100000000');
  });

  it('queue 4 and above do not exist [RDMAPX-10-01]', () => {
    for (const qn of ['00000004', '00000009', 'ffffffff']) {
      expectCopying('1201c000', `4143 00000000 ${qn} 00000001 00000000`);
    }
  });

  it('no receive is posted [DDP-7.1-02, DDP-7.1-08]', () => {
    const ulpdu = `${SEND} 41424344`;
    const peer = LiteralPeer.ofResponder();
    expectTerminate(ulpdu, '1202c000 0016 414300000000000000000000000100000000', peer);
  });

  it('a Send without payload needs a receive too [DDP-7.1-15, RDMAP-5.3-02]', () => {
    expectCopying('1202c000', SEND, LiteralPeer.ofResponder());
    const user = new ModelUser();
    user.postReceive(0);
    const peer = LiteralPeer.ofResponder({}, user).feed(SEND);
    expect(user.delivered.map((message) => message.length)).toEqual([0]);
    expect(user.receives.length).toBe(0);
    expect(peer.take()).toEqual([]);
  });

  it('MO beyond the buffer, without a 32-bit wrap [DDP-7.1-03, DDP-7.1-07]', () => {
    const ulpdu = '4143 00000000 00000000 00000001 fffffff0 41424344';
    expectTerminate(ulpdu, '1204c000 0016 4143000000000000000000000001fffffff0');
  });

  it('MO other than the bytes so far is refused [DDP-5.2-12, DDP-5.3-04, DDP-5.3-05]', () => {
    expectCopying('1204c000', '4143 00000000 00000000 00000001 00000004 41424344');
    const peer = peerWithMemory().feed('0143 00000000 00000000 00000001 00000000 4142');
    expectCopying('1204c000', '0143 00000000 00000000 00000001 00000000 4142', peer);
  });

  it('a message longer than its receive [DDP-7.1-04, RDMAP-5.3-04]', () => {
    const user = new ModelUser();
    user.postReceive(3);
    const ulpdu = `${SEND} 41424344`;
    const payload = '1205c000 0016 414300000000000000000000000100000000';
    expectTerminate(ulpdu, payload, LiteralPeer.ofResponder({}, user));
  });

  it('a message that runs over its receive at a segment boundary [DDP-7.1-07, DDP-7.1-04]', () => {
    const user = new ModelUser();
    user.postReceive(110);
    const peer = LiteralPeer.ofResponder({}, user);
    peer.feed('0143 00000000 00000000 00000001 00000000 55*110');
    expectCopying('1205c000', '0143 00000000 00000000 00000001 0000006e 55*110', peer);
  });

  it.each([['00000000'], ['00000002'], ['ffffffff']])(
    'MSN %s when 1 is due [DDP-7.1-05, DDP-7.1-06]',
    (msn) => {
      const user = new ModelUser();
      user.postReceive(64, 4);
      const ulpdu = `4143 00000000 00000000 ${msn} 00000000 41424344`;
      expectCopying('1203c000', ulpdu, LiteralPeer.ofResponder({}, user));
    },
  );

  it('an MSN that was delivered already [DDP-7.1-05, DDP-5.3-06]', () => {
    const user = new ModelUser();
    user.postReceive(64, 4);
    const peer = LiteralPeer.ofResponder({}, user).feed(`${SEND} 41`);
    expect(user.delivered.length).toBe(1);
    expectCopying('1203c000', `${SEND} 41`, peer);
  });

  it('the next MSN while the current message lacks its last segment [DDP-7.1-06]', () => {
    const user = new ModelUser();
    user.postReceive(64, 4);
    const peer = LiteralPeer.ofResponder({}, user);
    peer.feed('0143 00000000 00000000 00000001 00000000 41');
    expectCopying('1203c000', '4143 00000000 00000000 00000002 00000000 42', peer);
  });

  it('an unknown STag [DDP-7.1-09]', () => {
    const ulpdu = 'c140 deadbeef 0000000000000000 41424344';
    expectTerminate(ulpdu, '1100c000 0012 c140deadbeef0000000000000000');
  });

  it('an STag of another stream [DDP-7.1-10, DDP-4.2-05, DDP-8.2-02, DDP-8.2-03, SEC-6.1.1-04]', () => {
    const peer = peerWithMemory();
    peer.user.register(0x22, 64, 0, { associated: false });
    expectCopying('1102c000', 'c140 00000022 0000000000000000 41424344', peer);
  });

  it('an STag that may not be written [DDP-7.1-11]', () => {
    const peer = peerWithMemory();
    peer.user.register(0x22, 64, 0, { writable: false });
    expectCopying('1100c000', 'c140 00000022 0000000000000000 41424344', peer);
  });

  it('TO outside the range, or a payload that passes its end [DDP-7.1-12, DDP-7.1-13]', () => {
    const last = '1101c000 000f c140112233440000000000002000';
    expectTerminate('c140 11223344 0000000000002000 41', last);
    for (const to of ['0000000000000fff', '0000000000001ffd', '0000000100001000']) {
      expectCopying('1101c000', `c140 11223344 ${to} 41424344`);
    }
    const peer = peerWithMemory().feed('c140 11223344 0000000000001ffc 41424344');
    expect(memoryOf(peer).endsWith('0041424344')).toBe(true);
  });

  it('TO and length pass 2^64, or reach it [DDP-7.1-14, DDP-7.1-17]', () => {
    const ulpdu = 'c140 11223344 ffffffffffffffff 41424344';
    expectTerminate(ulpdu, '1103c000 0012 c14011223344ffffffffffffffff');
    expectCopying('1103c000', 'c140 11223344 fffffffffffffffc 41424344');
    // One byte less does not wrap; it is merely out of bounds.
    expectCopying('1101c000', 'c140 11223344 fffffffffffffffb 41424344');
  });

  it('another DDP version, tagged and untagged [DDP-7.2-05, DDP-4.1-12, RDMAP-7.2-01]', () => {
    for (const version of [0, 2, 3]) {
      expectCopying('1206c000', `4${version}43 00000000 00000000 00000001 00000000 41`);
      expectCopying('1104c000', `c${version}40 11223344 0000000000001000 41`);
    }
    expectCopying('1206c000', '4243 00000000 00000005 00000001 00000000');
  });

  it('a segment shorter than its header [DDP-4.4-01, DDP-4.4-02, DDP-6.2.2-01, RDMAP-4.8-08]', () => {
    for (const [control, header] of [
      ['c140', 14],
      ['4143', 18],
    ] as const) {
      for (let length = 0; length < header; length++) {
        const cut = hexOf(bytesOf(`${control} ff*32`).subarray(0, length));
        const peer = peerWithMemory();
        const before = memoryOf(peer);
        // A ULPDU of no bytes cannot be posted; its FPDU is literal.
        if (length === 0) peer.feedBytes(bytesOf('0000 0000 c74b6748'));
        else peer.feed(cut);
        expect(peer.take()).toEqual([terminate('10000000')]);
        expect(memoryOf(peer)).toBe(before);
        expect(peer.types).toContain('terminated');
      }
    }
  });

  it('reserved bits are ignored [DDP-4.1-10, RDMAP-4.1-07]', () => {
    const peer = peerWithMemory();
    peer.user.postReceive(64);
    peer.feed('7d43 00000000 00000000 00000001 00000000 4142', 'fd40 11223344 0000000000001000 41');
    peer.feed('4173 00000000 00000000 00000002 00000000 4142');
    expect(peer.user.delivered.map((message) => message.payload)).toEqual(['4142', '4142']);
    expect(memoryOf(peer).startsWith('4100')).toBe(true);
    expect(peer.take()).toEqual([]);
  });

  it('the header in error is copied as received, reserved bits included [RDMAP-4.8-07]', () => {
    expectCopying('1201c000', '7d43 01020304 00000005 00000001 00000000');
    expectCopying('1100c000', 'fd70 deadbeef 0000000000000000 41');
  });

  it('nothing counts after the first error [DDP-7.1-19, RDMAP-7.1-05, RDMAP-7-01, DDP-3-04]', () => {
    const user = new ModelUser();
    user.register(0x11223344, 64);
    user.postReceive(64, 200);
    const peer = LiteralPeer.ofResponder({}, user);
    const later = Array.from({ length: 100 }, (_, i) => [
      `4143 00000000 00000000 ${(i + 1).toString(16).padStart(8, '0')} 00000000 41`,
      'c140 11223344 0000000000000000 42',
      'c140 deadbeef 0000000000000000 42',
    ]).flat();
    peer.feed('4143 00000000 00000005 00000001 00000000', ...later).feed(...later);
    expect(peer.take()).toEqual([terminate('1201c000 0012 414300000000000000050000000100000000')]);
    expect(user.delivered).toEqual([]);
    expect(user.placements).toBe(0);
    expect(peer.types.filter((type) => type === 'terminated')).toEqual(['terminated']);
  });

  it('memory that disappeared is a local catastrophic error [DDP-7.2-02]', () => {
    class Lost extends ModelUser {
      override placeWrite(): AccessRefusal {
        return AccessRefusal.memoryLost;
      }
      override placeReceive(): AccessRefusal {
        return AccessRefusal.memoryLost;
      }
    }
    for (const ulpdu of ['c140 11223344 0000000000001000 41', `${SEND} 41`]) {
      const user = new Lost();
      user.postReceive(64);
      expectTerminate(ulpdu, '10000000', LiteralPeer.ofResponder({}, user));
    }
  });
});

describe('RDMAP errors', () => {
  it('another RDMAP version [RDMAP-4.1-05, RDMAP-4.8-22, RDMAP-4.8-31]', () => {
    for (const control of ['03', '83', 'c3']) {
      expectCopying('0205c000', `41${control} 00000000 00000000 00000001 00000000 41`);
    }
    expectCopying('0205c000', 'c180 11223344 0000000000001000 41');
    expectCopying('0205c000', `4181 00000000 00000001 00000001 00000000 00*28`);
  });

  it('an unassigned opcode [RDMAP-4.8-23, IANA-3.4-01, RDMAP-7.2-03]', () => {
    for (const opcode of ['c', 'd', 'e', 'f']) {
      expectCopying('0206c000', `414${opcode} 00000000 00000000 00000001 00000000 41`);
      expectCopying('0206c000', `c14${opcode} 11223344 0000000000001000 4142`);
    }
    expectCopying('0205c000', 'c18f 11223344 0000000000001000 4142');
  });

  it('an opcode with the wrong tagged bit or queue [RDMAP-7.2-02, RDMAPX-8.2-01]', () => {
    for (let opcode = 0; opcode < 12; opcode++) {
      const digit = opcode.toString(16);
      const right = [-1, 1, -1, 0, 0, 0, 0, 2, 0, 0, 1, 3][opcode];
      if (right !== -1) {
        expectCopying('0206c000', `c14${digit} 11223344 0000000000001000 41`);
      }
      for (let qn = 0; qn < 4; qn++) {
        if (qn === right) continue;
        const ulpdu = `414${digit} 00000000 0000000${qn} 00000001 00000000 00*28`;
        // A Terminate opcode elsewhere is a bad message, and answered as one.
        expectCopying('0206c000', ulpdu);
      }
    }
  });

  it('without RFC 7306 its messages are unexpected [RDMAPX-1.1-03]', () => {
    const immediate = '4148 00000000 00000000 00000001 00000000 0000000000000000';
    const off = { extensionsEnabled: false };
    expectCopying('0206c000', immediate, peerWithMemory(off));
    expectCopying('0206c000', `${ATOMIC} 00*52`, peerWithMemory(off));
    const response = '414b 00000000 00000003 00000001 00000000 00*12';
    expectCopying('1201c000', response, peerWithMemory(off));
  });

  it('an opcode that changes within a message [DDP-4.3-04]', () => {
    const peer = peerWithMemory().feed('0143 00000000 00000000 00000001 00000000 41');
    expectCopying('0206c000', '4145 00000000 00000000 00000001 00000001 41', peer);
  });

  it('an STag that may not be invalidated [RDMAP-4.8-20, RDMAP-5.3-10, RDMAP-4.8-34, RDMAP-4.8-33]', () => {
    for (const change of [{ associated: false }, { invalidatable: false }]) {
      const peer = peerWithMemory();
      peer.user.register(0xcafe0002, 64, 0, change);
      const ulpdu = '4144 cafe0002 00000000 00000001 00000000 4142';
      expectTerminate(ulpdu, '0109c000 0014 4144cafe0002000000000000000100000000', peer);
      expect(peer.user.regions.has(0xcafe0002)).toBe(true);
    }
  });

  it('an STag to invalidate that was never assigned [RDMAP-7.2-04]', () => {
    expectCopying('0100c000', '4146 deadbeef 00000000 00000001 00000000 4142');
  });

  it('an unknown source STag [RDMAP-4.8-09, RDMAP-4.8-10, RDMAP-4.8-15, RDMAP-4.8-30, RDMAP-7.1-04]', () => {
    const header = '11223344 0000000000001000 00001000 55667788 0000000000002000';
    const ulpdu = `${READ} ${header}`;
    expectTerminate(ulpdu, `0100e000 002e ${READ} ${header}`);
  });

  it('bad sources [RDMAP-4.8-16, RDMAP-4.8-17, RDMAP-4.8-18, RDMAP-4.8-19, RDMAP-7.2-05, RDMAP-5.2.1-09, SEC-6.3.5-01]', () => {
    const cases: readonly [string, string, string][] = [
      ['0101e000', '00001000', '11223344 0000000000001001'],
      ['0101e000', '00000002', '11223344 0000000000001fff'],
      ['0101e000', '00000001', '11223344 0000000000000fff'],
      ['0101e000', 'ffffffff', '11223344 0000000000001000'],
      ['0102e000', '00000001', '00000022 0000000000000000'],
      ['0103e000', '00000001', '00000033 0000000000000000'],
      ['0104e000', '00000002', '11223344 ffffffffffffffff'],
      ['0104e000', '00000001', '11223344 ffffffffffffffff'],
    ];
    for (const [control, size, source] of cases) {
      const peer = peerWithMemory();
      peer.user.register(0x22, 64, 0, { readable: false });
      peer.user.register(0x33, 64, 0, { associated: false });
      const header = `00000001 0000000000000000 ${size} ${source}`;
      expectTerminate(`${READ} ${header}`, `${control} 002e ${READ} ${header}`, peer);
    }
    // An exact fit is served.
    const peer = peerWithMemory();
    peer.feed(`${READ} 00000001 0000000000000000 00001000 11223344 0000000000001000`);
    expect(peer.take().length).toBe(3);
    expect(peer.types).toEqual(['request', 'established']);
  });

  it('a Read Request that is not 28 bytes long [RDMAP-4.4-06]', () => {
    for (const [length, control, change] of [
      [27, '02ffc000', {}],
      [29, '02ffc000', {}],
      [52, '02ffc000', {}],
      [53, '1205c000', {}],
      [0, '02ffc000', {}],
      [29, '1205c000', { extensionsEnabled: false }],
    ] as const) {
      expectCopying(control, `${READ} 11*${length}`, peerWithMemory(change));
    }
  });

  it('a Read Request beyond IRD [RDMAP-6.1-04, RDMAP-4.8-32, SEC-6.4.3.3-02]', () => {
    const peer = peerWithMemory({ ird: 2 });
    peer.user.stallSource = Number.POSITIVE_INFINITY;
    const request = (msn: number): string =>
      `4141 00000000 00000001 0000000${msn} 00000000 00000001 0000000000000000 00000001 11223344 0000000000001000`;
    peer.feed(request(1), request(2));
    expect(peer.types).toEqual(['request', 'established']);
    expectTerminate(request(3), copying('1202c000', request(3)), peer);
  });

  it('a Read that fails midway reports the rest [RDMAP-4.8-11]', () => {
    const user = new ModelUser();
    user.register(0x55667788, 0x1000, 0x2000);
    user.sourceFailsAt = 2048;
    user.refusals = { gatherReadSource: AccessRefusal.stagInvalid };
    // 1024 bytes of payload in a segment.
    const fpduSize = { kind: 'fixed', mulpduBytes: 1038 } as const;
    const peer = LiteralPeer.ofResponder({ fpduSize }, user);
    peer.feed(`${READ} 11223344 0000000000001000 00001000 55667788 0000000000002000`);
    const [first, second, last, ...rest] = peer.take();
    expect(first?.slice(0, 28)).toBe('8142112233440000000000001000');
    expect(second?.slice(0, 28)).toBe('8142112233440000000000001400');
    expect(rest).toEqual([]);
    const left = '11223344 0000000000001800 00000800 55667788 0000000000002800';
    expect(last).toBe(terminate(`0100e000 002e ${READ} ${left}`));
  });

  it('source memory that disappeared fits no other code [RDMAP-4.8-21]', () => {
    const user = new ModelUser();
    user.register(0x55667788, 0x1000, 0x2000);
    user.refusals = { gatherReadSource: AccessRefusal.memoryLost };
    const header = '11223344 0000000000001000 00000010 55667788 0000000000002000';
    const payload = `01ffe000 002e ${READ} ${header}`;
    expectTerminate(`${READ} ${header}`, payload, LiteralPeer.ofResponder({}, user));
  });

  it('a misaligned atomic [RDMAPX-8.2-02, RDMAPX-5.1.1-04, RDMAPX-5.1.2-03, RDMAP-4.8-24, RDMAPX-8.1-02]', () => {
    for (const operation of ['00', '02']) {
      const ulpdu = `${ATOMIC} 000000${operation} 00000007 11223344 0000000000001004 0000000000000001 00*16 ff*8`;
      expectTerminate(ulpdu, '0207c000 0046 414a00000000000000010000000100000000');
    }
  });

  it('an atomic on memory without the access right [RDMAPX-8.2-03]', () => {
    const target = (stag: string, to: string): string =>
      `${ATOMIC} 00000000 00000007 ${stag} ${to} 0000000000000001 00*16 ff*8`;
    for (const [control, stag, to] of [
      ['0100c000', 'deadbeef', '0000000000001000'],
      ['0101c000', '11223344', '0000000000001ff9'],
      ['0102c000', '00000022', '0000000000000000'],
      ['0103c000', '00000033', '0000000000000000'],
      ['0104c000', '11223344', 'fffffffffffffff8'],
    ] as const) {
      const peer = peerWithMemory();
      peer.user.register(0x22, 64, 0, { writable: false });
      peer.user.register(0x33, 64, 0, { associated: false });
      const ulpdu = target(stag, to);
      expectCopying(control, ulpdu, peer);
    }
  });

  it('an unassigned atomic operation [RDMAPX-5.2.1-10]', () => {
    for (const operation of ['01', '0f']) {
      const ulpdu = `${ATOMIC} 000000${operation} 00000007 11223344 0000000000001008 00*32`;
      expectCopying('0206c000', ulpdu);
    }
  });

  it('an Atomic Request that is not 52 bytes long [RDMAPX-5.2.1-13]', () => {
    for (const [length, control] of [
      [51, '02ffc000'],
      [53, '1205c000'],
    ] as const) {
      expectCopying(control, `${ATOMIC} 00*${length}`);
    }
  });

  it('Immediate Data that is not 8 bytes long takes no receive [RDMAPX-6.3-05]', () => {
    for (const length of [0, 7, 9]) {
      const peer = peerWithMemory();
      expectCopying('02ffc000', `4148 00000000 00000000 00000001 00000000 00*${length}`, peer);
      expect(peer.user.receives.length).toBe(1);
    }
  });

  it('Immediate Data needs a receive of 8 bytes [RDMAPX-6.3-02]', () => {
    const ulpdu = '4148 00000000 00000000 00000001 00000000 0102030405060708';
    expectCopying('1202c000', ulpdu, LiteralPeer.ofResponder());
    const user = new ModelUser();
    user.postReceive(4);
    expectCopying('1205c000', ulpdu, LiteralPeer.ofResponder({}, user));
  });

  it('an unrequested Read Response [RDMAP-5.2.2-08]', () => {
    expectCopying('0206c000', 'c142 11223344 0000000000001000 4142');
  });

  it('an unrequested Atomic Response [RDMAPX-5.2.2-06]', () => {
    expectCopying('1202c000', '414b 00000000 00000003 00000001 00000000 00000007 0000000000000000');
  });

  it('a CRC error is reported without header copies [RDMAP-4.8-29, DDP-7-01, RDMAP-6.2.1-01]', () => {
    const peer = peerWithMemory().feed(SEND);
    peer.feedBytes(bytesOf(`0012 ${SEND} 00000000`));
    expect(peer.take()).toEqual([terminate('20020000')]);
    expect(peer.failure).toMatchObject({ kind: 'protocol', layer: 2, etype: 0, code: 2 });
  });
});

describe('a Terminate received', () => {
  const CRC_ERROR = `4147 00000000 00000002 00000001 00000000 20020000`;

  it('is reported upward, consumes no receive and gets no answer [RDMAP-5.4-02, RDMAP-5.4-03, RDMAP-5.4-04]', () => {
    const peer = peerWithMemory().feed(
      '4147 00000000 00000002 00000001 00000000 0100e000 002e 414100000000000000010000000100000000 00*28',
    );
    expect(peer.take()).toEqual([]);
    expect(peer.user.receives.length).toBe(1);
    expect(peer.types.slice(2)).toEqual(['terminated', 'finish']);
    expect(peer.failure).toMatchObject({ kind: 'terminated', layer: 0, etype: 1, code: 0 });
    peer.finish();
    expect(peer.types.slice(-1)).toEqual(['closed']);
  });

  it('one that is cut is an error and gets no answer [RDMAP-5.4-04]', () => {
    const peer = peerWithMemory().feed('4147 00000000 00000002 00000001 00000000 200200');
    expect(peer.take()).toEqual([]);
    expect(peer.types.slice(2)).toEqual(['abort', 'closed']);
  });

  it('neither a bad version nor a bad MSN of one is answered [RDMAP-5.4-04]', () => {
    for (const ulpdu of [
      '4247 00000000 00000002 00000001 00000000 20020000',
      '4187 00000000 00000002 00000001 00000000 20020000',
      '4147 00000000 00000002 00000002 00000000 20020000',
      '4147 00000000 00000002 00000001 00000001 20020000',
    ]) {
      const peer = peerWithMemory().feed(ulpdu);
      expect(peer.take()).toEqual([]);
      expect(peer.types.slice(2)).toEqual(['abort', 'closed']);
    }
  });

  it('nothing is sent after it, and a second one changes nothing [RDMAP-5.4-07, RDMAP-5.4-06]', () => {
    const peer = LiteralPeer.ofInitiator();
    peer.feed(CRC_ERROR, '4147 00000000 00000002 00000002 00000000 02060000');
    for (let i = 0; i < 100; i++) peer.user.send(new Uint8Array(8));
    peer.run();
    expect(peer.take()).toEqual([]);
    expect(peer.user.jobCount).toBe(100);
    expect(peer.types.filter((type) => type === 'terminated').length).toBe(1);
    expect(peer.failure).toMatchObject({ layer: 2, etype: 0, code: 2 });
  });

  it('names the bit order of siw', () => {
    const peer = peerWithMemory().feed('4147 00000000 00000002 00000001 00000000 02020000');
    expect(peer.failure).toMatchObject({
      layer: 2,
      etype: 0,
      code: 2,
      quirk: 'siw-terminate-bit-order',
    });
  });

  it('may come in several segments [DDP-5.2-14]', () => {
    const peer = peerWithMemory().feed(
      '0147 00000000 00000002 00000001 00000000 1201',
      '0147 00000000 00000002 00000001 00000002 c000 0016 4143',
      '4147 00000000 00000002 00000001 00000008 00000000 00000005 00000001 00000000 77*100',
    );
    expect(peer.take()).toEqual([]);
    expect(peer.failure).toMatchObject({ kind: 'terminated', layer: 1, etype: 2, code: 1 });
  });
});
