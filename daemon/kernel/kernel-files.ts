/** The kinds of files that the kernel server can open. */
import { CM_NUMBERS } from '../clients/objects/daemon-budget.ts';
import { HandleSpace } from '../clients/objects/handle-space.ts';
import type { CmContext, Membership } from './cm/context.ts';
import { CmFile } from './cm/file.ts';
import type { CmNumbers } from './cm/open-channel.ts';
import type { KernelFileKind, KernelFileMaker } from './kernel-file.ts';
import { NetlinkFile } from './nldev/nldev.ts';
import { UverbsFile } from './uverbs/file.ts';

/** The namespaces of rdma_cm's numbers for one server. */
export function cmNumbers(): CmNumbers {
  return {
    ids: new HandleSpace<CmContext>(0, CM_NUMBERS),
    memberships: new HandleSpace<Membership>(0, CM_NUMBERS),
  };
}

/**
 * Makers by kind for one server, with the state that its files share. Opening a kind without a maker
 * fails with EOPNOTSUPP.
 */
export function kernelFileMakers(): Readonly<Partial<Record<KernelFileKind, KernelFileMaker>>> {
  const numbers = cmNumbers();
  return {
    uverbs: (parts) => new UverbsFile(parts),
    rdmaCm: (parts) => new CmFile(parts, numbers),
    netlink: (parts) => new NetlinkFile(parts),
  };
}
