import { describe, expect, it } from 'vitest';
import type { LinkTap } from '#daemon/capture/capture-tap';
import { WireTrace } from '#daemon/cli/traffic/wire-trace';

const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex.replaceAll(' ', ''), 'hex'));

// Written by hand after RFC 5044 §7.1 and RFC 6581 §6: revision 2, S, IRD 1, ORD 1, no CRC.
const REQUEST = bytes('4d504120494420526571204672616d65 10 02 0004 0001 0001');
const REPLY = bytes('4d504120494420526570204672616d65 10 02 0004 0001 0001');
const REPLY_WITH_CRC = bytes('4d504120494420526570204672616d65 50 02 0004 0001 0001');
// A Send of "hi" (RFC 5041 §4.2): length 20, control 41 43, queue 0, MSN 1, MO 0, pad 2, no CRC.
const SEND = bytes('0014 41 43 00000000 00000000 00000001 00000000 6869 0000 00000000');

function trace(dialed: boolean): { tap: LinkTap; lines: string[] } {
  const lines: string[] = [];
  const tap = new WireTrace((direction, text) => lines.push(`${direction} ${text}`)).opened({
    localAddress: '127.0.0.2',
    localPort: 1,
    remoteAddress: '127.0.0.3',
    remotePort: 2,
    dialed,
    emssBytes: 1460,
  });
  return { tap, lines };
}

describe('the trace of a connection', () => {
  it('has a line for each frame and each FPDU, in order, with its direction', () => {
    const { tap, lines } = trace(true);
    tap.outbound(REQUEST);
    tap.inbound(REPLY);
    tap.outbound(SEND);
    tap.inbound(SEND);
    tap.finished('us');
    tap.closed(false);
    expect(lines).toEqual([
      'outbound MPA Request revision 2, IRD 1, ORD 1',
      'inbound MPA Reply revision 2, IRD 1, ORD 1',
      'outbound Send QN 0 MSN 1 MO 0, 2 bytes, last',
      'inbound Send QN 0 MSN 1 MO 0, 2 bytes, last',
      'outbound FIN',
    ]);
  });

  it('is the same however TCP cuts the bytes', () => {
    const { tap, lines } = trace(false);
    for (const byte of REQUEST) tap.inbound(Uint8Array.of(byte));
    for (const byte of Buffer.concat([REPLY, SEND])) tap.outbound(Uint8Array.of(byte));
    tap.inbound(Buffer.concat([SEND, SEND.subarray(0, 9)]));
    tap.inbound(SEND.subarray(9));
    expect(lines.map((line) => line.split(' ').slice(0, 2).join(' '))).toEqual([
      'inbound MPA',
      'outbound MPA',
      'outbound Send',
      'inbound Send',
      'inbound Send',
    ]);
  });

  it('checks CRCs when either side requested them', () => {
    const { tap, lines } = trace(true);
    tap.outbound(REQUEST);
    tap.inbound(REPLY_WITH_CRC);
    tap.inbound(SEND);
    expect(lines[2]).toMatch(/^inbound bad FPDU: .*CRC/);
  });

  it('reports bytes that are not MPA, and a reset connection', () => {
    const { tap, lines } = trace(true);
    tap.inbound(bytes('485454502f312e31203430302042616420526571'));
    tap.closed(true);
    expect(lines).toEqual(['inbound no MPA reply: wrong-key', 'inbound the connection was reset']);
  });
});
