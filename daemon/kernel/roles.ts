/** The connection roles that the kernel's part of the socket serves. */
import { Role } from '#contract/protocol/ipc-frames';
import type { KernelFileKind } from './kernel-file.ts';

/** Roles whose connections belong to files, with the kind of file. */
export const FILE_ROLES: Readonly<Partial<Record<number, KernelFileKind>>> = {
  [Role.uverbs]: 'uverbs',
  [Role.rdmaCm]: 'rdmaCm',
  [Role.netlink]: 'netlink',
};

/** Whether a connection of this role belongs to an unmodified program. */
export function isKernelRole(role: number): boolean {
  return role === Role.event || FILE_ROLES[role] !== undefined;
}
