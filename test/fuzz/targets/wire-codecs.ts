/** Codecs and framing of the wire: startup frames, FPDUs, headers. Pure, hence the fastest targets. */
import { FpduReceiver } from '#daemon/iwarp/engine/fpdu-receiver';
import type { UlpduSink } from '#daemon/iwarp/engine/lower-layer';
import { Startup, type StartupEffect } from '#daemon/iwarp/engine/startup';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import {
  ddpHeaderBytes,
  readDDPHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
  writeTaggedHeader,
  writeUntaggedHeader,
} from '#daemon/iwarp/wire/ddp-header';
import { dumpStartupFrame, dumpULPDU } from '#daemon/iwarp/wire/dump';
import { fpduSizeBytes } from '#daemon/iwarp/wire/fpdu';
import {
  READ_REQUEST_BYTES,
  ReadRequest,
  readReadRequest,
  writeReadRequest,
} from '#daemon/iwarp/wire/rdmap-header';
import {
  emitStartupFrame,
  parseStartupFrame,
  startupFrameBytesNeeded,
  startupFrameSizeBytes,
} from '#daemon/iwarp/wire/startup-frame';
import { parseTerminate } from '#daemon/iwarp/wire/terminate';
import type { Draws } from '#test/support/draws';
import { dirtyPool, streamOf } from '#test/support/fpdu-stream';
import { hexOf, NO_BYTES } from '#test/support/hex';
import { inPieces, mutated, scribble } from '#test/support/mutate';
import { pattern } from '#test/support/pattern';
import { effects, initiator, responder } from '#test/support/startup-dialogue';
import { ANSWERS, SEGMENTS, startupFrames } from '../corpus.ts';
import { canary, claim, type FuzzTarget, patch } from '../target.ts';

const NOTHING_TO_END = (): void => undefined;

/** Segment headers: a decoded header encodes to the same bytes. */
export const wireHeader: FuzzTarget = {
  name: 'wire-header',
  about: 'DDP, RDMAP and Terminate headers: read, written again and printed',
  batchInputs: 200_000,
  weight: 700_000,
  smokeInputs: 150_000,
  // A decoder that accepts a Terminate longer than its segment.
  canary: canary(20_000, Uint8Array.prototype, 'slice', (slice, start, end) =>
    slice(start, end === undefined ? end : end + 1),
  ),
  open() {
    const corpus = [...SEGMENTS, ...ANSWERS].map((bytes) => bytes.slice(0, 100));
    const bytes = new Uint8Array(128);
    const written = new Uint8Array(64);
    const request = new ReadRequest();
    return {
      run(draws) {
        const source = corpus[draws.below(corpus.length)] ?? bytes;
        bytes.set(source);
        let length = source.length;
        for (let count = draws.below(4); count > 0; count--) {
          scribble(bytes, draws.below(48), draws);
        }
        if (draws.oneIn(4)) length = draws.below(length + 1);
        if (draws.recording) draws.show(hexOf(bytes.subarray(0, length)));
        if (draws.oneIn(64)) claim(dumpULPDU(bytes, 0, length) !== '', 'prints nothing');
        const header = readDDPHeader(bytes, 0, length);
        if (header === undefined) {
          claim(length === 0 || length < ddpHeaderBytes(bytes[0] ?? 0), 'a header is not read');
          return 'short';
        }
        if (header.tagged) {
          writeTaggedHeader(written, 0, header);
          claimSame(written, bytes, TAGGED_HEADER_BYTES);
          return 'tagged';
        }
        writeUntaggedHeader(written, 0, header);
        claimSame(written, bytes, UNTAGGED_HEADER_BYTES);
        const restBytes = length - UNTAGGED_HEADER_BYTES;
        const terminate = parseTerminate(bytes, UNTAGGED_HEADER_BYTES, restBytes);
        claim((terminate === undefined) === restBytes < 4, 'a Terminate needs four bytes');
        if (terminate?.ddpHeader !== undefined) {
          const expected = ddpHeaderBytes(terminate.ddpHeader[0] ?? 0);
          claim(terminate.ddpHeader.length === expected, 'a copied header has its own length');
          claim(6 + expected <= restBytes, 'a copied header lies within the Terminate');
        }
        if (restBytes < READ_REQUEST_BYTES) return 'untagged';
        readReadRequest(bytes, UNTAGGED_HEADER_BYTES, request);
        writeReadRequest(request, written, UNTAGGED_HEADER_BYTES);
        for (let at = 0; at < READ_REQUEST_BYTES; at++) {
          const place = UNTAGGED_HEADER_BYTES + at;
          claim(written[place] === bytes[place], 'a Read Request changes');
        }
        return 'request';
      },
      close: NOTHING_TO_END,
    };
  },
};

/** Ignores reserved bits and the version in the first byte, which are not copied from the peer. */
function claimSame(written: Uint8Array, bytes: Uint8Array, length: number): void {
  claim(((written[0] ?? 0) & 0xc0) === ((bytes[0] ?? 0) & 0xc0), 'T and L change');
  for (let at = 1; at < length; at++) claim(written[at] === bytes[at], 'a header changes');
}

/** Startup frames and the startup machine. */
export const wireStartup: FuzzTarget = {
  name: 'wire-startup',
  about: 'MPA startup frames into the parser and the startup machine of either end',
  batchInputs: 20_000,
  weight: 60_000,
  smokeInputs: 12_000,
  canary: {
    // A machine that reports its request twice.
    plant: () => {
      let kept: StartupEffect | undefined;
      return patch(Startup.prototype, 'pollEffect', (poll) => {
        const effect = poll();
        const again = effect ?? kept;
        kept = effect?.type === 'request' ? effect : undefined;
        return again;
      });
    },
    inputs: 2_000,
  },
  open() {
    const corpus = startupFrames();
    return {
      run(draws) {
        const bytes = mutated(draws.pick(corpus), corpus, draws, draws.below(4));
        if (draws.recording) draws.show(hexOf(bytes));
        for (const kind of ['request', 'reply'] as const) parseFrame(bytes, kind);
        return drive(bytes, draws);
      },
      close: NOTHING_TO_END,
    };
  },
};

function parseFrame(bytes: Uint8Array, kind: 'request' | 'reply'): void {
  const needed = startupFrameBytesNeeded(bytes, bytes.length, kind);
  if (typeof needed === 'string') return;
  claim(needed >= 20 && needed <= 532, `asks for ${needed} bytes`);
  if (bytes.length < needed) return;
  const frame = parseStartupFrame(bytes.subarray(0, needed), kind);
  claim(typeof frame !== 'string', 'complete, but then refused');
  claim(dumpStartupFrame(frame) !== '', 'prints nothing');
  const again = new Uint8Array(startupFrameSizeBytes(frame));
  emitStartupFrame(frame, again);
  const reread = parseStartupFrame(again, kind);
  claim(typeof reread !== 'string', 'a parsed frame cannot be written');
  claim(JSON.stringify(reread) === JSON.stringify(frame), 'a frame changes when written again');
}

function drive(bytes: Uint8Array, draws: Draws): string {
  const isInitiator = draws.oneIn(2);
  const options = {
    peerToPeer: draws.oneIn(2),
    enhancedSupported: !draws.oneIn(4),
    markersRequested: draws.oneIn(4),
  };
  const startup = isInitiator ? initiator(options) : responder(options);
  const seen = effects(startup).map((effect) => effect.type as string);
  inPieces(bytes, draws, (start, end) => {
    startup.handleBytes(bytes, start, end);
    for (const effect of effects(startup)) {
      seen.push(effect.type);
      if (effect.type !== 'request') continue;
      if (draws.oneIn(4)) startup.reject(NO_BYTES);
      else startup.accept(NO_BYTES, { ird: draws.below(300), ord: 4 }, 2000);
    }
  });
  if (draws.oneIn(2)) startup.handlePeerClosed();
  startup.handleDeadline(Number.MAX_SAFE_INTEGER);
  for (const effect of effects(startup)) seen.push(effect.type);
  const count = (type: string): number => seen.filter((one) => one === type).length;
  claim(count('request') <= 1 && count('failed') <= 1, `saw ${seen.join()}`);
  claim(count('full-operation') + count('rejected') <= 1, `saw ${seen.join()}`);
  const mayTransmit = isInitiator ? 1 : count('request');
  claim(count('transmit') <= mayTransmit, `saw ${seen.join()}`);
  claim(isInitiator || !startup.sendable, 'a responder may send before an FPDU was received');
  return seen.at(-1) ?? 'silent';
}

const ULPDUS = [42, 18, 1, 502, 46, 1442, 14, 600, 42].map((size, i) => pattern(size, i));

/** Checks delivered bytes without copying them. */
class CheckingSink implements UlpduSink {
  delivered = 0;
  takenBytes = 0;
  readonly #crcEnabled: boolean;
  #unknown = false;

  constructor(crcEnabled: boolean) {
    this.#crcEnabled = crcEnabled;
  }

  handleUlpdu(bytes: Uint8Array, start: number, length: number): undefined {
    this.delivered += 1;
    this.takenBytes += fpduSizeBytes(length);
    if (this.#crcEnabled && !isKnown(bytes, start, length)) this.#unknown = true;
  }

  get unknown(): boolean {
    return this.#unknown;
  }
}

function isKnown(bytes: Uint8Array, start: number, length: number): boolean {
  const lengthAlike = ULPDUS.filter((one) => one.length === length);
  const seen = bytes.subarray(start, start + length);
  return lengthAlike.some((one) => Buffer.compare(one, seen) === 0);
}

/** FPDU streams of every kind: only sent bytes are delivered. */
export const wireFpdu: FuzzTarget = {
  name: 'wire-fpdu',
  about: 'FPDU streams, with and without markers and CRCs, in any pieces',
  batchInputs: 5_000,
  weight: 30_000,
  smokeInputs: 6_000,
  // A receiver that ignores CRCs.
  canary: canary(1_000, FpduReceiver.prototype, 'push', (push, ...given) => {
    const [bytes, start, end, sink] = given;
    if (start < end) sink.handleUlpdu(bytes, start, Math.min(42, end - start));
    return push(...given);
  }),
  open() {
    const kinds = [false, true].flatMap((markers) =>
      [false, true].map((crcEnabled) => {
        const corpus = [ULPDUS, ULPDUS.slice(0, 3), ULPDUS.slice(3, 6)].map((ulpdus) =>
          streamOf(ulpdus, markers, crcEnabled),
        );
        return { markers, crcEnabled, corpus };
      }),
    );
    const pool = dirtyPool();
    return {
      run(draws) {
        const { markers, crcEnabled, corpus } = draws.pick(kinds);
        const bytes = mutated(draws.pick(corpus), corpus, draws, draws.below(5));
        if (draws.recording) draws.show(`markers ${markers} crc ${crcEnabled} ${hexOf(bytes)}`);
        const receiver = new FpduReceiver({ pool, crc32c, crcEnabled, markers });
        const sink = new CheckingSink(crcEnabled);
        inPieces(bytes, draws, (start, end) => {
          const before = receiver.error;
          const error = receiver.push(bytes, start, end, sink);
          claim(before === undefined || error === before, 'an error did not persist');
        });
        claim(!sink.unknown, 'delivered bytes that were not sent');
        claim(sink.takenBytes <= bytes.length, 'delivered more than received');
        const code = receiver.error?.code;
        const mayFail = code === 2 ? crcEnabled : code === 3 && markers;
        claim(code === undefined || mayFail, `error code ${code}`);
        receiver.release();
        claim(pool.inUseCount === 0, 'a chunk is lost');
        return code === undefined ? 'taken' : 'refused';
      },
      close: NOTHING_TO_END,
    };
  },
};
