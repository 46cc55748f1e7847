/** Both rpings as ends of a connection: ours on the host or in the guest, rdma-core's in the guest. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { RunningCommand } from '../support/cli-process.ts';
import { programSeconds } from '../support/patience.ts';
import { repositoryRoot } from '../support/prerequisites.ts';
import type { GuestProcess } from './kernel-peer/kernel-peer.ts';

/** The outcome of an end: its exit status, and stdout and stderr as one. */
export interface EndedRping {
  readonly status: number | undefined;
  readonly output: string;
}

/** A shell command that runs our rping in the guest, which sees the host's files. */
export function ourRpingInGuest(words: string): string {
  return iwarpdInGuest(`rping ${words}`);
}

/** A command of iwarpd for a guest, which sees the host's files. */
export function iwarpdInGuest(words: string): string {
  const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
  if (!existsSync(main)) throw new Error('dist/ lacks the command: run npm run build');
  return `node ${main} ${words}`;
}

/**
 * rdma-core's rping as a shell command. After some failures, such as a refused connection, it never
 * exits, so its time is limited.
 */
export function kernelRping(words: string, seconds = programSeconds()): string {
  return `timeout -k 1 ${seconds} rping ${words}`;
}

/** The end of a guest's script. */
export async function endOf(process: GuestProcess): Promise<EndedRping> {
  const status = await process.exit;
  return { status, output: process.output };
}

/** The end of a command of ours on the host. */
export async function endOfCommand(command: RunningCommand): Promise<EndedRping> {
  const { status, stdout, stderr } = await command.end();
  return { status, output: stdout + stderr };
}

/** The line of our rping with `-d` when a connection is up. */
export function establishedLine(revision: 1 | 2, crc: boolean): string {
  return `established: MPA revision ${revision}, CRC ${crc ? 'on' : 'off'}`;
}
