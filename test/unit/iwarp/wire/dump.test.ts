import { describe, expect, it } from 'vitest';
import { dumpStartupFrame, dumpULPDU } from '#daemon/iwarp/wire/dump';
import { bytesOf } from '#test/support/hex';

function dump(text: string): string {
  const bytes = bytesOf(`00*3 ${text}`);
  return dumpULPDU(bytes, 3, bytes.length - 3);
}

describe('a line of text', () => {
  it.each([
    ['4143 00*4 00000000 00000001 00000000 68656c6c6f', 'Send QN 0 MSN 1 MO 0, 5 bytes, last'],
    ['0145 00*4 00000000 00000002 00000582', 'Send with SE QN 0 MSN 2 MO 1410, 0 bytes'],
    [
      '4144 cafe0001 00000000 00000001 00000000 4142',
      'Send with Invalidate QN 0 MSN 1 MO 0, invalidates 0xcafe0001, 2 bytes, last',
    ],
    [
      'c140 11223344 0000000100000010 4142',
      'Write STag 0x11223344 TO 0x0000000100000010, 2 bytes, last',
    ],
    [
      '4141 00*4 00000001 00000001 00000000 11223344 0000000000001000 00001000 55667788 0000000000002000',
      'Read Request QN 1 MSN 1 MO 0, 4096 bytes from STag 0x55667788 TO 0x0000000000002000 ' +
        'to STag 0x11223344 TO 0x0000000000001000, last',
    ],
    [
      '4147 00*4 00000002 00000001 00000000 02020000',
      'Terminate QN 2 MSN 1 MO 0, MPA CRC error (2/0/0x02), siw-terminate-bit-order, last',
    ],
    [
      '4147 00*4 00000002 00000001 00000000 1201c000 0016 4143 00*4 00000005 00000001 00000000',
      'Terminate QN 2 MSN 1 MO 0, invalid QN (1/2/0x01), segment of 22 bytes, DDP header, last',
    ],
    [
      '4148 00*4 00000000 00000001 00000000 0102030405060708',
      'Immediate Data QN 0 MSN 1 MO 0, value 0x0102030405060708, last',
    ],
    [
      '414a 00*4 00000001 00000001 00000000 00000000 00000007 11223344 0000000000001008 0000000000000001 00*16 ff*8',
      'Atomic Request QN 1 MSN 1 MO 0, FetchAdd 0x0000000000000001 at STag 0x11223344 ' +
        'TO 0x0000000000001008, id 7, last',
    ],
    [
      '414b 00*4 00000003 00000001 00000000 00000007 000000000000002a',
      'Atomic Response QN 3 MSN 1 MO 0, id 7 was 0x000000000000002a, last',
    ],
    [
      '414f 00*4 00000000 00000001 00000000',
      'Opcode 15 (wrong tagged bit) QN 0 MSN 1 MO 0, 0 bytes, last',
    ],
    [
      '4283 00*4 00000000 00000001 00000000',
      'Send (DDP version 2, RDMAP version 2) QN 0 MSN 1 MO 0, 0 bytes, last',
    ],
    ['4143 00', 'ULPDU of 3 bytes without a whole header'],
    ['', 'ULPDU of 0 bytes without a whole header'],
  ])('shows %s', (bytes, text) => {
    expect(dump(bytes)).toBe(text);
  });

  it('never throws, however a segment is cut', () => {
    const whole = bytesOf(`414a 00*4 00000001 00000001 00000000 00*52`);
    for (let length = 0; length <= whole.length; length++) {
      expect(dumpULPDU(whole, 0, length)).not.toBe('');
      expect(dumpULPDU(whole.subarray(0, length), 0, length)).not.toBe('');
    }
  });

  it('shows startup frames', () => {
    const frame = {
      kind: 'request' as const,
      markers: false,
      crc: true,
      rejected: false,
      revision: 2,
      enhanced: {
        peerToPeer: true,
        rtr: { send: false, write: true, read: true },
        ird: 32,
        ord: 16,
      },
      privateData: new Uint8Array(3),
    };
    expect(dumpStartupFrame(frame)).toBe(
      'MPA Request revision 2, CRC, IRD 32, ORD 16, peer to peer, RTR by Write or Read, ' +
        '3 bytes of private data',
    );
    const reply = { ...frame, kind: 'reply' as const, rejected: true, markers: true };
    expect(
      dumpStartupFrame({ ...reply, enhanced: undefined, privateData: new Uint8Array(0) }),
    ).toBe('MPA Reply revision 2, rejected, CRC, markers');
  });
});
