/** Hostile peers: startup frames, FPDUs, headers, streams and raw TCP. */
import { describe, expect, it } from 'vitest';
import { startupFrameBytesNeeded } from '#daemon/iwarp/wire/startup-frame';
import { runBatch } from './batch.ts';
import { startupFrames } from './corpus.ts';
import { bites, smoke } from './smoke.ts';
import { roceMad } from './targets/roce-mad.ts';

describe('fuzzing what peers send', () => {
  it('decodes and encodes any header to the same bytes', () => smoke('wire-header'));

  it('limits startup frames and answers only a Request [MPA-7.1.2-17, MPA-7.1.2-02, MPA-7.1.2-03]', () =>
    smoke('wire-startup'));

  it('delivers only FPDUs that were sent, with or without markers and CRCs [MPA-4.4-16, MPA-8-07, MPA-4.1-06]', () =>
    smoke('wire-fpdu'));

  it('places nothing outside registered memory and reports nothing after the end [RDMAP-7.2-01, DDP-7.1-16, SEC-6.2.1-01]', () =>
    smoke('wire-stream'));

  it('reads RoCEv2 packets whole or refuses them', () => smoke('wire-roce'));

  it('survives hostile datagrams of other hosts', () => smoke('wire-roce-udp'));

  it('leaves connections alone, whatever strangers say of theirs', () => smoke('wire-mad'));

  it('ends a host that strangers gave more ids than it destroys in a turn', async () => {
    const { finding } = await runBatch(roceMad, 3_682_619_784);
    expect(finding).toBeUndefined();
  });

  it('survives hostile TCP peers of a real host', () => smoke('wire-socket'));

  it('starts from valid frames', () => {
    const needed = startupFrames().flatMap((frame) =>
      (['request', 'reply'] as const).map((kind) =>
        startupFrameBytesNeeded(frame, frame.length, kind),
      ),
    );
    expect(needed.filter((bytes) => typeof bytes === 'number').length).toBeGreaterThan(8);
  });
});

describe('canaries: a planted defect is found', () => {
  it.each([
    'wire-header',
    'wire-startup',
    'wire-fpdu',
    'wire-stream',
    'wire-roce',
    'wire-roce-udp',
    'wire-mad',
    'wire-socket',
  ])('%s', bites);
});
