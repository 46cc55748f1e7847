import { describe, expect, it } from 'vitest';
import { fpduSizeBytes } from '../../daemon/wire/fpdu.ts';
import { parseStartupFrame, startupFrameBytesNeeded } from '../../daemon/wire/startup-frame.ts';
import type { Prng } from '../sim/prng.ts';
import {
  dirtyPool,
  patterned,
  RecordingSink,
  receiverOf,
  streamOf,
} from '../support/fpdu-stream.ts';
import { hexOf, octetsOf } from '../support/hex.ts';
import { effects, initiator, NO_DATA, responder } from '../support/startup-dialogue.ts';
import { readVectors } from '../support/vectors.ts';
import { fuzz } from './octet-fuzzer.ts';

const { valid } = readVectors<{ readonly valid: readonly { readonly octets: string }[] }>(
  'mpa-startup.json',
);
const frames = valid.map(({ octets }) => octetsOf(octets));
const ulpdus = [42, 18, 1, 502, 46, 1442, 14, 600, 42].map((size, i) => patterned(size, i));
const known = ulpdus.map(hexOf);

/** Feeds `octets` in pieces of random size. */
function inPieces(
  octets: Uint8Array,
  prng: Prng,
  take: (start: number, end: number) => void,
): void {
  for (let at = 0; at < octets.length; ) {
    const end = Math.min(at + prng.between(1, 400), octets.length);
    take(at, end);
    at = end;
  }
}

function claim(condition: boolean, text: string): void {
  if (!condition) throw new Error(text);
}

describe('octet fuzzing', () => {
  it('canary: a planted fault is found, so that silence means something', () => {
    const finding = fuzz({
      corpus: frames,
      rounds: 20_000,
      target(octets) {
        const needed = startupFrameBytesNeeded(octets, octets.length, 'request');
        claim(needed !== 'enhanced-length', 'planted');
      },
    });
    expect(finding?.text).toBe('planted');
    const again = octetsOf(finding?.octets ?? '');
    expect(startupFrameBytesNeeded(again, again.length, 'request')).toBe('enhanced-length');
  });

  it('MPA-7.1.2-17: startup frames: bounded, and never an exception', () => {
    const finding = fuzz({
      corpus: frames,
      rounds: 20_000,
      target(octets) {
        for (const kind of ['request', 'reply'] as const) {
          const needed = startupFrameBytesNeeded(octets, octets.length, kind);
          if (typeof needed === 'string') continue;
          claim(needed >= 20 && needed <= 532, `asks for ${needed} octets`);
          if (octets.length < needed) continue;
          const frame = parseStartupFrame(octets.subarray(0, needed), kind);
          claim(typeof frame !== 'string', 'complete, and then refused');
        }
      },
    });
    expect(finding).toBeUndefined();
  });

  it('MPA-7.1.2-02, MPA-7.1.2-03: the startup machine comes to one end, and answers only a Request', () => {
    const finding = fuzz({
      corpus: frames,
      rounds: 10_000,
      target(octets, prng) {
        const isInitiator = prng.oneIn(2);
        const options = {
          peerToPeer: prng.oneIn(2),
          enhancedSupported: !prng.oneIn(4),
          markersRequested: prng.oneIn(4),
        };
        const startup = isInitiator ? initiator(options) : responder(options);
        const seen = effects(startup).map((effect) => effect.type);
        inPieces(octets, prng, (start, end) => {
          startup.handleOctets(octets, start, end);
          for (const effect of effects(startup)) {
            seen.push(effect.type);
            if (effect.type !== 'request') continue;
            if (prng.oneIn(2)) startup.accept(NO_DATA, { ird: prng.below(300), ord: 4 }, 2000);
            else startup.reject(NO_DATA);
          }
        });
        if (prng.oneIn(2)) startup.handlePeerClosed();
        startup.handleDeadline(Number.MAX_SAFE_INTEGER);
        seen.push(...effects(startup).map((effect) => effect.type));
        const count = (type: string) => seen.filter((one) => one === type).length;
        claim(count('request') <= 1 && count('failed') <= 1, `saw ${seen.join()}`);
        claim(count('full-operation') + count('rejected') <= 1, `saw ${seen.join()}`);
        const mayTransmit = isInitiator ? 1 : count('request');
        claim(count('transmit') <= mayTransmit, `saw ${seen.join()}`);
        claim(isInitiator || !startup.sendable, 'a responder may send before an FPDU came');
      },
    });
    expect(finding).toBeUndefined();
  });

  it.each([false, true])(
    'MPA-4.4-16, MPA-8-07: FPDUs with CRC: what is delivered was sent (markers: %s)',
    (markers) => {
      const finding = fuzz({
        corpus: [streamOf(ulpdus, markers), streamOf(ulpdus.slice(0, 3), markers)],
        rounds: 4_000,
        target(octets, prng) {
          const pool = dirtyPool();
          const receiver = receiverOf({ pool, markers });
          const sink = new RecordingSink();
          inPieces(octets, prng, (start, end) => {
            const before = receiver.error;
            const error = receiver.push(octets, start, end, sink);
            claim(before === undefined || error === before, 'an error did not stay');
          });
          for (const ulpdu of sink.hex) claim(known.includes(ulpdu), 'delivered what was not sent');
          const code = receiver.error?.code;
          claim(code === undefined || code === 2 || code === 3, `error code ${code}`);
          receiver.release();
          claim(pool.inUseCount === 0, 'a chunk is lost');
        },
      });
      expect(finding).toBeUndefined();
    },
  );

  it.each([false, true])(
    'MPA-4.1-06: FPDUs without CRC: bounded, and never an exception (markers: %s)',
    (markers) => {
      const finding = fuzz({
        corpus: [streamOf(ulpdus, markers, false), streamOf(ulpdus.slice(0, 3), markers, false)],
        rounds: 4_000,
        target(octets, prng) {
          const receiver = receiverOf({ markers, crcEnabled: false });
          const sink = new RecordingSink();
          inPieces(octets, prng, (start, end) => receiver.push(octets, start, end, sink));
          const taken = sink.ulpdus.reduce((sum, one) => sum + fpduSizeBytes(one.length), 0);
          claim(taken <= octets.length, 'delivered more than came');
          const code = receiver.error?.code;
          claim(code === undefined || (markers && code === 3), `error code ${code}`);
        },
      });
      expect(finding).toBeUndefined();
    },
  );
});
