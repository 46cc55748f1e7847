/** Identifies a client: its number, its process and how long it has been connected. */
import type { ClientStatus, ClientUsage } from '#contract/protocol/ipc-admin';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { programName } from './program-name.ts';

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
