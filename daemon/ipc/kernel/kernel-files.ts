/** The kinds of files that the kernel server can open. */
import { CmFile } from './cm-file.ts';
import type { KernelFileKind, KernelFileMaker } from './kernel-file.ts';
import { NetlinkFile } from './nldev.ts';
import { UverbsFile } from './uverbs-file.ts';

/** Makers by kind; a kind that is missing here cannot be opened (EOPNOTSUPP). */
export const KERNEL_FILES: Readonly<Partial<Record<KernelFileKind, KernelFileMaker>>> = {
  uverbs: (parts) => new UverbsFile(parts),
  rdmaCm: (parts) => new CmFile(parts),
  netlink: (parts) => new NetlinkFile(parts),
};
