/** Damaged capture files: a line about the fault or lines about what is left, never anything else. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CaptureDecoder } from '../../daemon/capture/capture-decoder.ts';
import { CaptureError } from '../../daemon/capture/capture-error.ts';
import { capturePath } from '../interop/captures/expectation.ts';
import { fuzz } from './octet-fuzzer.ts';

const corpus = ['sends', 'mpa-v1', 'terminate-write-stag', 'private-data'].map((name) =>
  Uint8Array.from(readFileSync(capturePath(name))),
);

/** Decodes in pieces of `step` octets; what it found, or that the file was refused. */
function decode(octets: Uint8Array, step: number): string {
  const lines: string[] = [];
  const decoder = new CaptureDecoder({
    line: ({ source, destination, text }) => lines.push(`${source} ${destination} ${text}`),
  });
  try {
    for (let at = 0; at < octets.length; at += step) decoder.push(octets.slice(at, at + step));
    decoder.finish();
  } catch (error) {
    if (!(error instanceof CaptureError)) throw error;
    lines.push(error.message);
  }
  return lines.join('\n');
}

describe('damaged capture files', () => {
  it('canary: damage shows', () => {
    const intact = new Set(corpus.map((octets) => decode(octets, octets.length)));
    const finding = fuzz({
      corpus,
      rounds: 200,
      target: (octets) => {
        if (!intact.has(decode(octets, octets.length))) throw new Error('planted');
      },
    });
    expect(finding?.text).toBe('planted');
  });

  it('are decoded as far as they go, the same however they come', () => {
    const finding = fuzz({
      corpus,
      rounds: 3000,
      target: (octets, prng) => {
        const whole = decode(octets, octets.length);
        if (decode(octets, prng.between(1, 500)) !== whole)
          throw new Error('depends on the pieces');
      },
    });
    expect(finding).toBeUndefined();
  });
});
