/** A program that uses the emulated kernel: its identity, its objects and its quotas. */

import { readFileSync } from 'node:fs';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import { judge } from '#daemon/lint/advice';
import type { Advice, Findings, LintedProgram } from '#daemon/lint/findings';
import type { Refusals } from '#daemon/refusals/refusals';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { ClientIdentity } from '../clients/client-identity.ts';
import type { OwnReport } from '../clients/objects/failure-report.ts';
import { type ClientQuotas, QuotaLedger } from '../clients/objects/quotas.ts';
import { rightsOf, type UserRights } from '../clients/objects/user-rights.ts';

interface ClientRecords {
  readonly refusals?: Refusals | undefined;
  readonly findings?: Findings | undefined;
}

/** All files of a process share one account. */
export class KernelClient extends ClientIdentity {
  readonly ledger: QuotaLedger;
  readonly rights: UserRights;
  /** Files that it opened and that still have objects. */
  openFiles = 0;
  /** Those of `openFiles` that no process holds open. */
  endingFiles = 0;
  /** Unread records of its objects' events. */
  unreadEvents = 0;
  /** rdma_cm has supplied attributes for a queue pair. */
  usesCm = false;
  readonly #refusals: Refusals | undefined;
  readonly #findings: Findings | undefined;

  /** `records` stores failures reported to the program, and advice to it. Default: none are stored. */
  constructor(
    id: number,
    credentials: PeerProcess,
    quotas: ClientQuotas,
    { refusals, findings }: ClientRecords = {},
  ) {
    super(id, credentials);
    this.#refusals = refusals;
    this.#findings = findings;
    this.ledger = new QuotaLedger(quotas, credentials.uid);
    this.rights = rightsOf(credentials.uid);
  }

  override status(): ClientStatus {
    return super.status(this.ledger.usage());
  }

  /**
   * Records failed work or an event. Ignores it once the program exits or closes a file: such failures
   * only follow from its end.
   */
  record(report: OwnReport): void {
    const { program, credentials } = this;
    const { pid, uid } = credentials;
    if (this.endingFiles > 0 || isExiting(pid)) return;
    this.#refusals?.record({ pid, uid, program, ...report });
  }

  /** An object of the program on this device has been destroyed. */
  judge(object: object, device: string): void {
    if (this.#findings !== undefined) judge(object, this.#linted(device), this.#findings);
  }

  advise(advice: Advice, device: string): void {
    this.#findings?.note(this.#linted(device), advice);
  }

  #linted(device: string): LintedProgram {
    const { program, credentials, usesCm } = this;
    return { pid: credentials.pid, program, device, script: false, usesCm };
  }
}

/** True if the process has no memory. False if that cannot be determined. */
export function isExiting(pid: number): boolean {
  if (pid === 0) return false;
  try {
    return readFileSync(`/proc/${pid}/statm`, 'latin1').startsWith('0 ');
  } catch {
    return false;
  }
}
