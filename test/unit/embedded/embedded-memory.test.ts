import { describe, expect, it } from 'vitest';
import { EmbeddedMemory } from '#daemon/embedded/embedded-memory';
import { failure } from '#test/support/outcomes';

describe('EmbeddedMemory', () => {
  it('gives views of one ArrayBuffer addresses at the distance of their bytes', () => {
    const memory = new EmbeddedMemory();
    const bytes = new Uint8Array(10_000);
    const start = memory.announce(bytes);
    expect(memory.announce(bytes.subarray(4097, 5000))).toBe(start + 4097n);
    expect(memory.announce(bytes)).toBe(start);
    const other = memory.announce(new Uint8Array(1));
    expect(other).toBeGreaterThanOrEqual(start + 10_000n);
    expect(other).not.toBe(0n);
  });

  it('accesses announced buffers directly, and fails with EFAULT for any others', () => {
    const memory = new EmbeddedMemory();
    const bytes = new Uint8Array(100);
    const part = bytes.subarray(10, 20);
    const address = memory.announce(part);
    const { backing } = memory.openProcess(address, 10);
    expect(backing.write(2, Uint8Array.of(7, 8), 1, 1)).toBe(true);
    expect(bytes[12]).toBe(8);
    expect(() => memory.openProcess(address, 11)).toThrow(failure('EFAULT'));
    memory.forget(address);
    expect(() => memory.openProcess(address, 10)).toThrow(failure('EFAULT'));
  });

  it('shares memory by token until it is released', () => {
    const memory = new EmbeddedMemory();
    const { mapping, view, release } = memory.createShared(64);
    expect(memory.view(mapping)).toBe(view);
    release();
    expect(() => memory.view(mapping)).toThrow(failure('EINVAL'));
  });
});
