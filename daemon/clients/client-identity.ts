/** Identifies a client: its number, its process and how long it has been connected. */

import { readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import type { ClientStatus, ClientUsage } from '#contract/protocol/ipc-admin';
import type { PeerProcess } from '#native-bridge/libc/peer-process';

export class ClientIdentity {
  /** Number of the client, see `ClientStatus`. */
  readonly id: number;
  readonly credentials: PeerProcess;
  /** Name of the program; '' if the daemon cannot see it. */
  readonly program: string;
  readonly #connectedAt = performance.now();

  constructor(id: number, credentials: PeerProcess) {
    this.id = id;
    this.credentials = credentials;
    this.program = programName(credentials.pid);
  }

  /** The client and its usage, as `iwarpd status` shows it. */
  status(usage: ClientUsage): ClientStatus {
    const { id, program } = this;
    const { pid, uid } = this.credentials;
    const connectedSeconds = Math.round((performance.now() - this.#connectedAt) / 1000);
    return { id, pid, uid, program, connectedSeconds, usage };
  }
}

/** Node 24's name for its first thread, hence for the process of every program that it runs. */
const NODES_THREAD = 'MainThread';
/** Maximum length of a name in the kernel. */
const NAME_MAX = 15;

/**
 * The name of a process (/proc/<pid>/comm), or of its executable if Node has set the former; '' if the
 * process is gone or not visible. Its command line would be more informative, but reading it touches
 * the process's memory, which may not respond.
 */
export function programName(pid: number): string {
  try {
    const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
    return name === NODES_THREAD ? executableName(pid, name) : name;
  } catch {
    return '';
  }
}

function executableName(pid: number, otherwise: string): string {
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`)).slice(0, NAME_MAX);
  } catch {
    return otherwise;
  }
}
