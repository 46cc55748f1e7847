/** A program that uses the emulated kernel: its identity, its objects and its quotas. */
import type { PeerProcess } from '../../../native-bridge/libc/peer-process.ts';
import type { Refusals } from '../../refusals/refusals.ts';
import { ClientIdentity } from '../client-identity.ts';
import type { OwnReport } from '../objects/failure-report.ts';
import { type ClientQuotas, QuotaLedger } from '../objects/quotas.ts';
import { rightsOf, type UserRights } from '../objects/user-rights.ts';

/** All files of one process share one account. */
export class KernelClient extends ClientIdentity {
  readonly ledger: QuotaLedger;
  readonly rights: UserRights;
  /** Files that it opened and of which something is left. */
  openFiles = 0;
  /** Those of them that no process has any longer, and of which something is left. */
  endingFiles = 0;
  /** Records of its objects' events that wait to be read. */
  unreadEvents = 0;
  readonly #refusals: Refusals | undefined;

  /** `refusals`: records what the program is told. Default: nothing is recorded. */
  constructor(id: number, credentials: PeerProcess, quotas: ClientQuotas, refusals?: Refusals) {
    super(id, credentials);
    this.#refusals = refusals;
    this.ledger = new QuotaLedger(quotas, credentials.uid);
    this.rights = rightsOf(credentials.uid);
  }

  /** The program is told of failed work, or of an event. */
  record(report: OwnReport): void {
    const { program, credentials } = this;
    const { pid, uid } = credentials;
    this.#refusals?.record({ pid, uid, program, ...report });
  }
}
