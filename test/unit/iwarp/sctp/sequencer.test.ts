import { describe, expect, it } from 'vitest';
import { Sequencer } from '#daemon/iwarp/sctp/sequencer';
import { bytesOf, hexOf } from '#test/support/hex';

const BYTES = bytesOf('0102');

describe('the order of DDP-SSNs', () => {
  it('starts at 0, and 65535 is followed by 0 [SCTP-6.1-01, SCTP-5.2.1-02]', () => {
    expect(new Sequencer().take(0, 16, BYTES)).toBe('due');
    const late = new Sequencer(0xffff);
    expect(late.take(0, 16, BYTES)).toBe('held');
    expect(late.take(0xffff, 16, BYTES)).toBe('due');
    late.advance();
    expect(late.due).toBe(0);
    expect(late.next).toEqual({ payloadProtocol: 16, bytes: BYTES });
  });

  it('keeps a copy of early messages until they are due [SCTP-10-02]', () => {
    const sequencer = new Sequencer();
    const lent = bytesOf('aabb');
    expect(sequencer.take(1, 17, lent)).toBe('held');
    lent.fill(0);
    expect(sequencer.next).toBeUndefined();
    sequencer.advance();
    expect(hexOf(sequencer.next?.bytes ?? BYTES)).toBe('aabb');
    sequencer.advance();
    expect(sequencer.heldBytes).toBe(0);
    sequencer.assertInvariants();
  });

  it('rejects old and duplicate messages', () => {
    const sequencer = new Sequencer(5);
    expect(sequencer.take(4, 16, BYTES)).toBe('past');
    expect(sequencer.take(7, 16, BYTES)).toBe('held');
    expect(sequencer.take(7, 16, BYTES)).toBe('repeated');
  });

  it('reserves nothing for a DDP-SSN that SCTP cannot have delivered [SCTP-10-04]', () => {
    const sequencer = new Sequencer();
    expect(sequencer.take(4096, 16, BYTES)).toBe('held');
    expect(sequencer.take(4097, 16, BYTES)).toBe('too-far');
    expect(sequencer.take(32_767, 16, BYTES)).toBe('too-far');
    expect(sequencer.take(32_768, 16, BYTES)).toBe('past');
    expect(sequencer.heldCount).toBe(1);
  });

  it('holds a bounded number of bytes', () => {
    const sequencer = new Sequencer(0, 1000);
    expect(sequencer.take(1, 16, new Uint8Array(600))).toBe('held');
    expect(sequencer.take(2, 16, new Uint8Array(401))).toBe('too-much');
    expect(sequencer.take(3, 16, new Uint8Array(400))).toBe('held');
    sequencer.release();
    expect(sequencer.heldCount).toBe(0);
    sequencer.assertInvariants();
  });
});
