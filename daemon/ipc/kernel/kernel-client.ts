/** A program that talks to the emulated kernel: who it is, what it holds, what it may hold. */
import type { PeerCredentials } from '../../../native-bridge/libc/unix-socket.ts';
import type { ClientStatus } from '../../../verbs-api/contract/ipc-admin.ts';
import type { MemoryTier } from '../../../verbs-api/contract/provider.ts';
import { programName } from '../program-name.ts';
import { type ClientQuotas, OBJECT_KINDS, QuotaLedger } from '../verbs/quotas.ts';

/** All files of one process share one account. */
export class KernelClient {
  /** Number of the client, see `ClientStatus`. */
  readonly id: number;
  readonly credentials: PeerCredentials;
  readonly ledger: QuotaLedger;
  /** Name of the program; '' when it cannot be seen from here. */
  readonly program: string;
  /** Files that it opened and that are still open somewhere. */
  openFiles = 0;
  readonly #connectedAt = performance.now();
  readonly #tiers = new Map<MemoryTier, { count: number; reason: string }>();

  constructor(id: number, credentials: PeerCredentials, quotas: ClientQuotas) {
    this.id = id;
    this.credentials = credentials;
    this.ledger = new QuotaLedger(quotas);
    this.program = programName(credentials.pid);
  }

  /** Counts a memory region that was added (1) or removed (-1). */
  noteRegion(tier: MemoryTier, reason: string, change: 1 | -1): void {
    const count = (this.#tiers.get(tier)?.count ?? 0) + change;
    if (count === 0) this.#tiers.delete(tier);
    else this.#tiers.set(tier, { count, reason });
  }

  /** What it is and holds. */
  status(): ClientStatus {
    const { pid, uid } = this.credentials;
    const { ledger, program } = this;
    const objects: Record<string, number> = {};
    for (const kind of OBJECT_KINDS) objects[kind] = ledger.count(kind);
    const tiers: Record<string, number> = {};
    const tierReasons: Record<string, string> = {};
    for (const [tier, { count, reason }] of this.#tiers) {
      tiers[tier] = count;
      tierReasons[tier] = reason;
    }
    return {
      id: this.id,
      pid,
      uid,
      program,
      connectedSeconds: Math.round((performance.now() - this.#connectedAt) / 1000),
      usage: {
        objects,
        sharedBytes: ledger.held('sharedBytes'),
        pinnedBytes: ledger.held('pinnedBytes'),
        tiers,
        tierReasons,
      },
    };
  }
}
