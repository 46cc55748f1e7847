import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { kernelHasVerbs } from '#daemon/native/kernel-rdma';
import { temporaryFolder } from '#test/support/temporary-folder';

it('the kernel has its verbs devices in the folder that rdma-core reads', () => {
  const sysfs = temporaryFolder();
  expect(kernelHasVerbs({ SYSFS_PATH: sysfs })).toBe(false);
  mkdirSync(join(sysfs, 'class/infiniband_verbs'), { recursive: true });
  expect(kernelHasVerbs({ SYSFS_PATH: sysfs })).toBe(true);
});
