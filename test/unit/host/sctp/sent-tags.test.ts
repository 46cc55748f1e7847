import { describe, expect, it } from 'vitest';
import { SentTags } from '#daemon/host/sctp/sent-tags';
import { bytesOf } from '#test/support/hex';

const INIT = bytesOf('1388 1c06 00000000 00000000 01 00 0014 01020304 00020000 0001 0001 00000009');
const dataOf = (tag: string) => bytesOf(`1388 1c06 ${tag} 00000000 00 07 0015 00000001`);

function sent(...packets: readonly Uint8Array[]): SentTags {
  const tags = new SentTags();
  for (const packet of packets) tags.note(packet, 0, packet.length);
  return tags;
}

describe('the tags of packets that were sent', () => {
  it('are those of their association; an INIT has the tag that it proposes', () => {
    const tags = sent(INIT, dataOf('0a0b0c0d'));
    expect(tags.has(dataOf('0a0b0c0d'))).toBe(true);
    expect(tags.has(dataOf('0a0b0c0d').subarray(0, 8))).toBe(true);
    expect(tags.has(INIT.subarray(0, 20))).toBe(true);
    expect(tags.has(dataOf('01020304'))).toBe(true);
    expect(tags.has(dataOf('0a0b0c0e'))).toBe(false);
  });

  it('are not found in a message that quotes too little, or no tag', () => {
    const tags = sent(INIT, dataOf('0a0b0c0d'));
    expect(tags.has(new Uint8Array(0))).toBe(false);
    expect(tags.has(dataOf('0a0b0c0d').subarray(0, 7))).toBe(false);
    expect(tags.has(INIT.subarray(0, 19))).toBe(false);
    expect(tags.has(new Uint8Array(20))).toBe(false);
    // Not an INIT, and without a tag.
    expect(tags.has(dataOf('00000000'))).toBe(false);
    expect(new SentTags().has(new Uint8Array(20))).toBe(false);
  });

  it('are those of the last packets only', () => {
    const tag = (number: number): string => (0x1000 + number).toString(16).padStart(8, '0');
    const tags = sent(...Array.from({ length: 20 }, (_, number) => dataOf(tag(number))));
    expect(tags.has(dataOf(tag(0)))).toBe(false);
    expect(tags.has(dataOf(tag(4)))).toBe(true);
    expect(tags.has(dataOf(tag(19)))).toBe(true);
  });
});
