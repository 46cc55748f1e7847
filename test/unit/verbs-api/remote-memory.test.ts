import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import { parseRemoteMemory, remoteMemory } from '#contract/verbs/remote-memory';

const fine = { addr: '0x1000', rkey: 0xffff_ffff, length: 16 };

it.each([
  ['text', JSON.stringify(fine)],
  ['bytes', new TextEncoder().encode(JSON.stringify(fine))],
  ['a value', { ...fine, more: 1 }],
])('accepts an exported region as %s, and nothing else of it', (_name, input) => {
  expect(parseRemoteMemory(input)).toEqual(fine);
});

it.each<[string, unknown]>([
  ['no object', 3],
  ['null', null],
  ['text that is not JSON', '{'],
  ['a list', '[]'],
  ['more text than it needs', JSON.stringify({ ...fine, more: 'x'.repeat(300) })],
  ['an address as a number', { ...fine, addr: 4096 }],
  ['an address of 65 bits', { ...fine, addr: `0x1${'0'.repeat(16)}` }],
  ['a negative address', { ...fine, addr: '-0x1' }],
  ['a key of 33 bits', { ...fine, rkey: 2 ** 32 }],
  ['a fractional key', { ...fine, rkey: 0.5 }],
  ['a negative length', { ...fine, length: -1 }],
  ['a length that is not finite', { ...fine, length: Number.POSITIVE_INFINITY }],
  ['a region beyond 64 bits', { ...fine, addr: '0xffffffffffffffff', length: 2 }],
  ['fields of a prototype', Object.create(fine)],
])('refuses %s with EINVAL', (_name, input) => {
  expect(() => parseRemoteMemory(input)).toThrow(expect.objectContaining({ code: 'EINVAL' }));
});

it('refuses to export memory without rights for peers, and names the rights', () => {
  const access = Access.localWrite | Access.mwBind;
  expect(() => remoteMemory(16n, 1, 16, access)).toThrow(
    expect.objectContaining({
      code: 'EACCES',
      message:
        'peers have no right to this memory region: its access is localWrite | mwBind; ' +
        'register it with remoteRead, remoteWrite or remoteAtomic',
    }),
  );
});

it('returns the exported memory, or EINVAL, for any input', () => {
  fc.assert(
    fc.property(fc.bigInt(0n, 2n ** 63n), fc.nat(), fc.nat(), (address, rkey, length) => {
      const exported = remoteMemory(address, rkey, length, Access.remoteRead);
      expect(parseRemoteMemory(JSON.stringify(exported))).toEqual(exported);
    }),
  );
  fc.assert(
    fc.property(fc.oneof(fc.anything(), fc.json(), fc.uint8Array()), (input) => {
      try {
        expect(parseRemoteMemory(input)).toMatchObject({ addr: expect.stringMatching(/^0x/) });
      } catch (error) {
        expect(error).toMatchObject({ code: 'EINVAL' });
      }
    }),
  );
});
