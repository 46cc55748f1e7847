/**
 * Which connections the daemon accepts. Each user has a share of them. Once all connections or
 * descriptors are in use, a few more are reserved for the owner's administration: `status`, `stop`,
 * `reset`.
 */
import { Role } from '#contract/protocol/ipc-frames';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import { isReserved, reservedText } from '#native-bridge/libc/descriptor-limit';
import type { ProgramConnection } from '../clients/connection.ts';
import { type DaemonBudget, takeFor, type UserShare } from '../clients/objects/daemon-budget.ts';
import { isTrusted } from '../clients/trusted-user.ts';

/**
 * Reserved connections: for administration, and for those that have not sent a greeting. A new
 * connection of the second kind replaces the oldest.
 */
const RESERVED_ADMINS_MAX = 16;
const RESERVED_SILENT_MAX = 8;

interface AdmissionOptions {
  /** Also serves clients of other users; otherwise only root's and the daemon user's own. */
  readonly allowOtherUsers: boolean;
  /** Default: no limits. */
  readonly budget: DaemonBudget | undefined;
}

export class Admission {
  readonly #options: AdmissionOptions;
  /** Reserved connections, each with the reason to refuse it other roles. */
  readonly #reserved = new Map<ProgramConnection, VerbsError>();
  /** All others, with the share to which each is charged. */
  readonly #charged = new Map<ProgramConnection, UserShare>();
  /** Reserved connections that have not sent a greeting. */
  readonly #silent = new Set<ProgramConnection>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /**
   * Admits a new connection, or throws `VerbsError`: EACCES, ENOMEM, EMFILE. Returns a connection to
   * close in its place, with the reason.
   */
  enter(
    connection: ProgramConnection,
  ): { readonly connection: ProgramConnection; readonly error: VerbsError } | undefined {
    const { uid } = connection.credentials;
    const owner = isTrusted(uid);
    if (!owner && !this.#options.allowOtherUsers) throw foreignUser(uid);
    const error = this.#take(connection);
    if (error === undefined) return undefined;
    if (!owner) throw error;
    this.#reserved.set(connection, error);
    this.#silent.add(connection);
    const [oldest] = this.#silent;
    if (oldest === undefined || this.#silent.size <= RESERVED_SILENT_MAX) return undefined;
    return { connection: oldest, error };
  }

  /** Throws the recorded reason if a reserved connection may not have this role. */
  assertRole(connection: ProgramConnection, role: number): void {
    this.#silent.delete(connection);
    const error = this.#reserved.get(connection);
    if (error === undefined) return;
    const admins = this.#reserved.size - this.#silent.size;
    if (role !== Role.admin || admins > RESERVED_ADMINS_MAX) throw error;
  }

  /** An admitted connection has ended. */
  left(connection: ProgramConnection): void {
    this.#silent.delete(connection);
    this.#reserved.delete(connection);
    const share = this.#charged.get(connection);
    if (share === undefined) return;
    this.#charged.delete(connection);
    share.give('connections');
    share.give('descriptors');
  }

  /** Charges the connection to its user, or returns why not. */
  #take(connection: ProgramConnection): VerbsError | undefined {
    const { fd } = connection;
    if (fd !== undefined && isReserved(fd)) return new VerbsError('EMFILE', reservedText());
    const share = this.#options.budget?.of(connection.credentials.uid);
    if (share === undefined) return undefined;
    connection.chargeTo(share);
    try {
      takeFor(share, ['connections', 'descriptors'], () => this.#charged.set(connection, share));
    } catch (error) {
      if (isVerbsError(error)) return error;
      throw error;
    }
    return undefined;
  }
}

function foreignUser(uid: number): VerbsError {
  const own = process.getuid?.();
  return new VerbsError(
    'EACCES',
    `user ${uid} may not use the daemon of user ${own}; "allowOtherUsers": true in its configuration permits it`,
  );
}
