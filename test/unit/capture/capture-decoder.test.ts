import { describe, expect, it } from 'vitest';
import { CaptureDecoder, CONNECTIONS_MAX } from '#daemon/capture/capture-decoder';
import type { LinkTap } from '#daemon/capture/capture-tap';
import { PcapngCapture } from '#daemon/capture/pcapng-capture';
import { bytesOf } from '#test/support/hex';

// Written by hand after RFC 5044 §7.1 and RFC 6581 §6: revision 2, S, IRD 1, ORD 1, no CRC.
const REQUEST = bytesOf('4d504120494420526571204672616d65 10 02 0004 0001 0001');
const REPLY = bytesOf('4d504120494420526570204672616d65 10 02 0004 0001 0001');
// A Send of "hi" (RFC 5041 §4.2): length 20, control 41 43, queue 0, MSN 1, MO 0, pad 2, no CRC.
const SEND = bytesOf('0014 41 43 00000000 00000000 00000001 00000000 6869 0000 00000000');

/** A recording written by the given links. */
class Recording {
  readonly pieces: Uint8Array[] = [];
  readonly #capture = new PcapngCapture({
    write: (bytes) => this.pieces.push(bytes.slice()),
    nowMicros: () => (this.#micros += 1000),
  });
  #micros = 0;

  link(port: number): LinkTap {
    return this.#capture.opened({
      localAddress: '127.0.0.2',
      localPort: port,
      remoteAddress: '127.0.0.3',
      remotePort: 7000,
      dialed: true,
      emssBytes: 1460,
    });
  }

  /** Leaves out the packet written last. */
  drop(): void {
    this.pieces.pop();
  }

  decoded(): { lines: string[]; decoder: CaptureDecoder } {
    const lines: string[] = [];
    const decoder = new CaptureDecoder({
      line: ({ source, kind, text }) => lines.push(`${source} ${kind} ${text}`),
    });
    for (const piece of this.pieces) decoder.push(piece);
    decoder.finish();
    return { lines, decoder };
  }
}

describe('the decoder of captures', () => {
  it('reports the messages of each side, and counts the rest', () => {
    const recording = new Recording();
    const link = recording.link(5000);
    const other = recording.link(5001);
    link.outbound(REQUEST);
    other.outbound(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    link.inbound(REPLY);
    link.outbound(SEND);
    link.finished('us');
    link.finished('peer');
    const { lines, decoder } = recording.decoded();
    expect(lines).toEqual([
      '127.0.0.2:5000 mpa MPA Request revision 2, IRD 1, ORD 1',
      '127.0.0.3:7000 mpa MPA Reply revision 2, IRD 1, ORD 1',
      '127.0.0.2:5000 fpdu Send QN 0 MSN 1 MO 0, 2 bytes, last',
      '127.0.0.2:5000 end FIN',
      '127.0.0.3:7000 end FIN',
    ]);
    expect(decoder.summary).toEqual({
      packets: 12,
      connections: 1,
      fpdus: 1,
      rocePackets: 0,
      sctpPackets: 0,
      errors: 0,
      otherConnections: 1,
      otherPackets: 0,
    });
  });

  it('reads a connection without a SYN from its Request on, and no other', () => {
    const recording = new Recording();
    const link = recording.link(5000);
    for (let packet = 0; packet < 3; packet++) recording.drop();
    link.outbound(REQUEST);
    link.inbound(REPLY);
    expect(recording.decoded().lines).toHaveLength(2);
    const late = new Recording();
    const started = late.link(5000);
    started.outbound(REQUEST);
    for (let packet = 0; packet < 4; packet++) late.drop();
    started.inbound(REPLY);
    started.outbound(SEND);
    expect(late.decoded().lines).toEqual([]);
  });

  it('stops a direction at missing bytes, and continues with the other', () => {
    const recording = new Recording();
    const link = recording.link(5000);
    link.outbound(REQUEST);
    link.inbound(REPLY);
    link.outbound(SEND);
    recording.drop();
    link.outbound(SEND);
    link.inbound(SEND);
    expect(recording.decoded().lines.slice(2)).toEqual([
      '127.0.0.3:7000 fpdu Send QN 0 MSN 1 MO 0, 2 bytes, last',
      `127.0.0.2:5000 error ${SEND.length} bytes are missing from the capture`,
    ]);
  });

  it('distinguishes a connection from a later one between the same ports', () => {
    const recording = new Recording();
    for (let round = 0; round < 2; round++) {
      const link = recording.link(5000);
      link.outbound(REQUEST);
      link.inbound(REPLY);
      link.closed(true);
    }
    const { lines, decoder } = recording.decoded();
    expect(decoder.summary.connections).toBe(2);
    expect(lines.filter((line) => line.endsWith('RST'))).toHaveLength(2);
  });

  it('reports a connection that ends inside a frame', () => {
    const recording = new Recording();
    const link = recording.link(5000);
    link.outbound(REQUEST);
    link.inbound(REPLY);
    link.outbound(SEND.subarray(0, 9));
    link.finished('us');
    expect(recording.decoded().lines.at(-1)).toBe('127.0.0.2:5000 end FIN inside a frame');
  });

  it('keeps a bounded number of connections, the latest ones', () => {
    const recording = new Recording();
    const first = recording.link(1);
    for (let port = 2; port <= CONNECTIONS_MAX + 1; port++) recording.link(port).outbound(REQUEST);
    first.outbound(REQUEST.subarray(0, 18));
    first.outbound(REQUEST.subarray(18));
    const { decoder } = recording.decoded();
    expect(decoder.summary.connections).toBe(CONNECTIONS_MAX + 1);
  });
});
