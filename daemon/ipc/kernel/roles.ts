/** The roles of connections that the kernel's part of the socket serves. */
import { Role } from '#contract/protocol/ipc-frames';
import type { KernelFileKind } from './kernel-file.ts';

/** Roles whose connections belong to files, and the kind of file. */
export const FILE_ROLES: Readonly<Partial<Record<number, KernelFileKind>>> = {
  [Role.uverbs]: 'uverbs',
  [Role.rdmaCm]: 'rdmaCm',
  [Role.netlink]: 'netlink',
};

/** Whether a connection of this role is an unmodified program's. */
export function isKernelRole(role: number): boolean {
  return role === Role.event || FILE_ROLES[role] !== undefined;
}
