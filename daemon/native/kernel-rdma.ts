/** Whether this kernel has RDMA devices, asked before rdma-core is loaded. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Whether the kernel has verbs devices, in the place where rdma-core looks for them: sysfs, or the
 * folder that SYSFS_PATH names.
 */
export function kernelHasVerbs(environment: NodeJS.ProcessEnv): boolean {
  return existsSync(join(environment['SYSFS_PATH'] ?? '/sys', 'class/infiniband_verbs'));
}
