/** Damaged capture files: decoded up to the damage, or refused with one line. */
import { CaptureDecoder } from '#daemon/capture/capture-decoder';
import { CaptureError } from '#daemon/capture/capture-file';
import { DatagramTrace } from '#daemon/capture/datagram-trace';
import { ipStart } from '#daemon/capture/ip-header';
import { findTcpSegment } from '#daemon/capture/tcp-segment';
import type { Draws } from '#test/support/draws';
import { hexOf } from '#test/support/hex';
import { inPieces, mutated, scribble } from '#test/support/mutate';
import { recordings } from '../corpus.ts';
import { readPcapFrames } from '../pcap-corpus.ts';
import { canary, claim, type FuzzTarget } from '../target.ts';

/** Longest recording to use: longer ones take more time and find no more. */
const RECORDING_MAX_BYTES = 20_000;
/** Longer than the line of any packet. */
const LINE_MAX = 400;

/** Decodes in pieces. Returns the lines, or why the file was refused. */
function decode(bytes: Uint8Array, draws: Draws | undefined): string {
  const lines: string[] = [];
  const decoder = new CaptureDecoder({
    line: ({ source, destination, text }) => lines.push(`${source} ${destination} ${text}`),
  });
  try {
    if (draws === undefined) decoder.push(bytes.slice());
    else inPieces(bytes, draws, (start, end) => decoder.push(bytes.slice(start, end)));
    decoder.finish();
  } catch (error) {
    if (!(error instanceof CaptureError)) throw error;
    lines.push(error.message);
  }
  return lines.join('\n');
}

/** Whole files. */
export const pcapFile: FuzzTarget = {
  name: 'pcap-file',
  about: 'damaged pcap and pcapng files, which any pieces have to give alike',
  batchInputs: 500,
  weight: 1_500,
  smokeInputs: 1_200,
  // A decoder that loses a piece.
  canary: canary(500, CaptureDecoder.prototype, 'push', (push, bytes) => {
    if (bytes.length !== 3) push(bytes);
  }),
  open() {
    const corpus = [...recordings(RECORDING_MAX_BYTES).values()];
    return {
      run(draws) {
        const bytes = mutated(draws.pick(corpus), corpus, draws, draws.below(6));
        if (draws.recording) draws.show(hexOf(bytes));
        const whole = decode(bytes, undefined);
        claim(decode(bytes, draws) === whole, 'the lines depend on the pieces');
        return whole === '' ? 'nothing' : 'lines';
      },
      close: () => undefined,
    };
  },
};

/** Single packets, which make up most of a capture. */
export const pcapPacket: FuzzTarget = {
  name: 'pcap-packet',
  about: 'packets of captures: Ethernet, IPv4, IPv6, TCP and RoCEv2 headers',
  batchInputs: 50_000,
  weight: 300_000,
  smokeInputs: 60_000,
  // A segment that extends beyond its packet.
  canary: canary(50_000, Uint8Array.prototype, 'subarray', (cut, start, end) => {
    const part = cut(start, end);
    return part.length === 40 ? new Uint8Array(4000) : part;
  }),
  open() {
    const files = [...recordings(RECORDING_MAX_BYTES).values()];
    const corpus = files.flatMap((file) => readPcapFrames(file)).map((each) => each.slice(0, 160));
    const bytes = new Uint8Array(256);
    const datagrams = new DatagramTrace();
    return {
      run(draws) {
        const source = draws.pick(corpus);
        bytes.set(source);
        let length = source.length;
        for (let count = draws.below(4); count > 0; count--) {
          scribble(bytes, draws.below(80), draws);
        }
        if (draws.oneIn(4)) length = draws.below(length + 1);
        const linkType = draws.oneIn(8) ? draws.word() : draws.pick([1, 1, 1, 1, 101, 113, 276]);
        const original = draws.oneIn(4) ? draws.word() : length;
        const packet = bytes.subarray(0, length);
        if (draws.recording) draws.show(`link type ${linkType} ${original} ${hexOf(packet)}`);
        const segment = findTcpSegment(linkType, packet, original);
        if (segment === undefined) {
          const at = ipStart(linkType, new DataView(bytes.buffer, 0, length));
          const traced = at === undefined ? undefined : datagrams.take(packet, at);
          if (traced === undefined) return 'other';
          claim(traced.text.length <= LINE_MAX, 'an overlong line');
          claim(traced.payloadBytes <= 4096, 'more payload than any path MTU');
          return traced.kind;
        }
        const { payload, payloadBytes, sequence } = segment;
        claim(payload.length <= length, 'more payload than packet');
        claim(payloadBytes >= payload.length, 'less was sent than was recorded');
        claim(sequence >= 0 && sequence <= 0xffff_ffff, `sequence number ${sequence}`);
        return 'segment';
      },
      close: () => undefined,
    };
  },
};
