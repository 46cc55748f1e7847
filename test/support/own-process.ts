/** This process as a client of a daemon's parts. */
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { openProcessDescriptor } from '#native-bridge/libc/process-vm';

export const SELF: PeerProcess = {
  pid: process.pid,
  uid: process.getuid?.() ?? 0,
  gid: process.getgid?.() ?? 0,
  identity: 'self',
  openDescriptor: () => openProcessDescriptor(process.pid),
};
