/** Whether this kernel has RDMA devices, checked before rdma-core is loaded. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Whether the kernel has verbs devices, checked where rdma-core looks for them: in sysfs, or in the
 * directory named by SYSFS_PATH.
 */
export function kernelHasVerbs(environment: NodeJS.ProcessEnv): boolean {
  return existsSync(join(environment['SYSFS_PATH'] ?? '/sys', 'class/infiniband_verbs'));
}
