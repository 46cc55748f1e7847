/** Whom the daemon trusts with everything: its own user, and root. */

/** True for the daemon's own user and for root. */
export function isTrusted(uid: number): boolean {
  return uid === 0 || uid === process.getuid?.();
}
