import type { BigIntStats } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { sysCredential } from '#test/support/nfs-rig';
import { Access3 } from '#verbs-api/nfs/nfs3/constants';
import {
  demandData,
  demandOwner,
  demandUnsticky,
  EXECUTE,
  grantedAccess,
  type Identity,
  identityOf,
  READ,
  rightsOf,
  WRITE,
} from '#verbs-api/nfs/server/permissions';

/** A file, or a directory, of user 10 and group 20. */
function file(mode: number, isDirectory = false): BigIntStats {
  const stats = { mode: BigInt(mode), uid: 10n, gid: 20n };
  const kind = { isDirectory: () => isDirectory, isFile: () => !isDirectory };
  return { ...stats, ...kind } as BigIntStats;
}

const superuser: Identity = { uid: 0, gids: [0] };
const owner: Identity = { uid: 10, gids: [10] };
const member: Identity = { uid: 11, gids: [11, 20] };
const other: Identity = { uid: 12, gids: [12] };
const ALL_BITS = 0x3f;

describe('rights', () => {
  it('are those of the first matching class, as for a local user', () => {
    const stats = file(0o416);
    expect(rightsOf(owner, stats)).toBe(READ);
    expect(rightsOf(member, stats)).toBe(EXECUTE);
    expect(rightsOf(other, stats)).toBe(READ | WRITE);
  });

  it('of the superuser include all, except execution that no class has', () => {
    expect(rightsOf(superuser, file(0))).toBe(READ | WRITE);
    expect(rightsOf(superuser, file(0o010))).toBe(READ | WRITE | EXECUTE);
    expect(rightsOf(superuser, file(0, true))).toBe(READ | WRITE | EXECUTE);
  });

  it('come from the credential; without one, from user nobody', () => {
    expect(identityOf(sysCredential(5, [6, 7]))).toEqual({ uid: 5, gids: [5, 6, 7] });
    expect(identityOf({ flavor: 'none' }).uid).toBe(65534);
  });
});

describe('required rights', () => {
  it('bytes: always the owner, others by mode, and executable files may be read', () => {
    expect(() => demandData(owner, file(0), WRITE)).not.toThrow();
    expect(() => demandData(other, file(0o001), READ)).not.toThrow();
    expect(() => demandData(other, file(0o001), WRITE)).toThrow('user 12');
    expect(() => demandData(member, file(0o607), READ)).toThrow('user 11');
  });

  it('ownership: the owner and the superuser', () => {
    expect(() => demandOwner(owner, file(0))).not.toThrow();
    expect(() => demandOwner(superuser, file(0))).not.toThrow();
    expect(() => demandOwner(member, file(0o777))).toThrow('does not own');
  });

  it('names in a sticky directory: the owner of either', () => {
    const sticky = file(0o1777, true);
    const entry = { ...file(0o666), uid: 12n } as BigIntStats;
    expect(() => demandUnsticky(owner, sticky, entry)).not.toThrow();
    expect(() => demandUnsticky(other, sticky, entry)).not.toThrow();
    expect(() => demandUnsticky(member, sticky, entry)).toThrow('does not own');
    expect(() => demandUnsticky(member, file(0o777, true), entry)).not.toThrow();
  });
});

describe('ACCESS', () => {
  const granted = (caller: Identity, server: Identity, stats: BigIntStats, readOnly = false) =>
    grantedAccess(ALL_BITS, caller, server, stats, readOnly);

  it('grants the rights that both the caller and the server have', () => {
    const { read, lookup, modify, extend, delete: remove, execute } = Access3;
    const directory = file(0o755, true);
    expect(granted(owner, superuser, directory)).toBe(read | lookup | modify | extend | remove);
    expect(granted(other, superuser, directory)).toBe(read | lookup);
    expect(granted(superuser, other, directory)).toBe(read | lookup);
    expect(granted(superuser, superuser, file(0o755))).toBe(read | modify | extend | execute);
    expect(granted(superuser, other, file(0o700))).toBe(0);
  });

  it('grants the owner, on a server run by the owner, the files that the server can open in any case', () => {
    expect(granted(superuser, owner, file(0))).toBe(Access3.read | Access3.modify | Access3.extend);
  });

  it('grants no change to a read-only export, and only requested rights', () => {
    expect(granted(superuser, superuser, file(0o777), true)).toBe(Access3.read | Access3.execute);
    expect(grantedAccess(Access3.modify, owner, owner, file(0o777), false)).toBe(Access3.modify);
  });
});
