import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { AHEAD_MAX_BYTES, TcpReassembly } from '#daemon/capture/tcp-reassembly';

function reassembly(first = 0): { stream: TcpReassembly; text: () => string } {
  let text = '';
  const stream = new TcpReassembly(first, (bytes) => {
    text += Buffer.from(bytes).toString('latin1');
  });
  return { stream, text: () => text };
}

function bytes(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text, 'latin1'));
}

describe('TCP reassembly', () => {
  it('delivers each byte once and in order, across the end of the sequence space', () => {
    const message = bytes('The quick brown fox jumps over the lazy dog');
    const cuts = fc.array(fc.tuple(fc.nat(message.length), fc.nat(12)), { maxLength: 40 });
    fc.assert(
      fc.property(cuts, fc.integer({ min: 0, max: 2 ** 32 - 1 }), (pieces, first) => {
        const { stream, text } = reassembly(first);
        const send = (start: number, end: number): void => {
          const part = message.subarray(start, end);
          expect(stream.take((first + start) >>> 0, part, part.length)).toBe(true);
        };
        for (const [start, length] of pieces) send(start, start + length);
        send(0, message.length);
        stream.finish();
        expect(text()).toBe(Buffer.from(message).toString('latin1'));
        expect(stream.lostBytes).toBe(0);
      }),
    );
  });

  it.each([
    ['in order', (at: number) => at],
    ['from both ends to the middle', (at: number) => (at % 2 === 0 ? at / 2 : 7_999 - (at >> 1))],
    ['in a fixed mixture', (at: number) => (at * 3_001) % 8_000],
  ])('joins segments that arrive %s after a hole, without moving those before', (_how, place) => {
    const splice = vi.spyOn(Array.prototype, 'splice');
    const { stream, text } = reassembly();
    for (let at = 0; at < 8_000; at += 1) {
      const sequence = 1 + place(at);
      stream.take(sequence, bytes(String.fromCharCode(97 + (sequence % 26))), 1);
    }
    expect(text()).toBe('');
    stream.take(0, bytes('a'), 1);
    expect(splice).not.toHaveBeenCalled();
    splice.mockRestore();
    const whole = Array.from({ length: 8_001 }, (_, at) => String.fromCharCode(97 + (at % 26)));
    expect(text()).toBe(whole.join(''));
  });

  it('takes the first of two segments with the same number', () => {
    const { stream, text } = reassembly();
    for (const letters of ['cd', 'xyz', 'CD']) stream.take(2, bytes(letters), letters.length);
    stream.take(0, bytes('ab'), 2);
    expect(text()).toBe('abcdz');
  });

  it('joins segments that arrive in reverse, across the end of the sequence space', () => {
    const first = 2 ** 32 - 4_000;
    const { stream, text } = reassembly(first);
    for (let at = 8_000; at > 0; at -= 1) {
      stream.take((first + at) >>> 0, bytes(String.fromCharCode(97 + (at % 26))), 1);
    }
    expect(text()).toBe('');
    stream.take(first, bytes('a'), 1);
    const whole = Array.from({ length: 8_001 }, (_, at) => String.fromCharCode(97 + (at % 26)));
    expect(text()).toBe(whole.join(''));
    stream.finish();
    expect(stream.lostBytes).toBe(0);
  });

  it('reports how much is missing at the end', () => {
    const { stream, text } = reassembly(100);
    stream.take(100, bytes('ab'), 2);
    stream.take(110, bytes('z'), 1);
    stream.take(105, bytes('y'), 1);
    stream.finish();
    expect(text()).toBe('ab');
    expect(stream.lostBytes).toBe(3);
    expect(stream.take(102, bytes('c'), 1)).toBe(false);
  });

  it('stops at bytes that the recorder left out, unless an earlier segment had them', () => {
    const cut = reassembly();
    expect(cut.stream.take(0, bytes('ab'), 5)).toBe(false);
    expect([cut.text(), cut.stream.lostBytes]).toEqual(['ab', 3]);
    const again = reassembly();
    again.stream.take(0, bytes('abcde'), 5);
    expect(again.stream.take(0, bytes('ab'), 5)).toBe(true);
    expect(again.stream.take(5, bytes('f'), 1)).toBe(true);
    expect(again.text()).toBe('abcdef');
  });

  it('keeps a bounded number of bytes that arrive early', () => {
    const { stream } = reassembly();
    const piece = new Uint8Array(65_536);
    let taken = 0;
    for (let at = 1; stream.take(at, piece, piece.length); at += piece.length) taken += 1;
    expect(taken).toBe(AHEAD_MAX_BYTES / piece.length);
    expect(stream.lostBytes).toBe(1);
  });
});
