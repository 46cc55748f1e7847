import { closeSync, fstatSync, openSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DescriptorCache } from '#verbs-api/nfs/server/descriptor-cache';

let cache: DescriptorCache;

/** Opens the same file again for a node. */
function keep(nodeId: number, purpose: 'path' | 'read' = 'path'): number {
  const fd = openSync('/dev/null', 'r');
  cache.keep(nodeId, purpose, fd);
  return fd;
}

function isOpen(fd: number): boolean {
  try {
    fstatSync(fd);
    return true;
  } catch {
    return false;
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

beforeEach(() => {
  cache = new DescriptorCache(3, closeSync);
});

afterEach(async () => {
  cache.close();
  await turn();
});

describe('descriptors', () => {
  it('are found by node and purpose, and closed when least recently used', async () => {
    const first = keep(1);
    const second = keep(2);
    keep(3, 'read');
    expect(cache.find(1, 'path')).toBe(first);
    keep(4);
    expect(cache.size).toBe(3);
    expect(cache.find(2, 'path')).toBeUndefined();
    await turn();
    expect(isOpen(second)).toBe(false);
    expect(isOpen(first)).toBe(true);
  });

  it('stay open until the running code has ended, since a number may be reused', () => {
    const fd = keep(1);
    cache.forget(1);
    expect(cache.find(1, 'path')).toBeUndefined();
    expect(isOpen(fd)).toBe(true);
  });

  it('in use are neither evicted nor closed before their last use ends', async () => {
    const fd = keep(1);
    const first = cache.use(1, 'path');
    const second = cache.use(1, 'path');
    for (const id of [2, 3, 4, 5]) keep(id);
    expect(cache.find(1, 'path')).toBe(fd);
    cache.forget(1);
    first();
    await turn();
    expect(isOpen(fd)).toBe(true);
    second();
    await turn();
    expect(isOpen(fd)).toBe(false);
  });

  it('of a node are replaced by newer ones of the same purpose', async () => {
    const old = keep(1);
    const fresh = keep(1);
    expect(cache.find(1, 'path')).toBe(fresh);
    await turn();
    expect(isOpen(old)).toBe(false);
  });

  it('that do not exist cannot be used', () => {
    expect(() => cache.use(9, 'read')).toThrow(RangeError);
  });
});
