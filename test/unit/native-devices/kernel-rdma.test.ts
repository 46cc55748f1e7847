import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { kernelHasVerbs } from '#daemon/native/kernel-rdma';

it('the kernel has verbs devices where rdma-core looks for them', () => {
  const sysfs = mkdtempSync(join(tmpdir(), 'iwarpd-sysfs-'));
  try {
    expect(kernelHasVerbs({ SYSFS_PATH: sysfs })).toBe(false);
    mkdirSync(join(sysfs, 'class/infiniband_verbs'), { recursive: true });
    expect(kernelHasVerbs({ SYSFS_PATH: sysfs })).toBe(true);
  } finally {
    rmSync(sysfs, { recursive: true });
  }
});
