/** `daemon/LIMITS.md` against the daemon's limits. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { isVerbsError } from '#contract/verbs/errors';
import { DaemonBudget, LIMIT_NAMES } from '#daemon/clients/objects/daemon-budget';
import { OWNER, SharedLimit } from '#daemon/clients/objects/shared-limit';
import { daemonLimits, uncollectedMappings } from '#daemon/main/host-limits';
import { deviceProfile } from '#daemon/rnic/device-profile';
import { DeviceRegistry } from '#daemon/rnic/device-registry';
import { repositoryRoot } from '#test/support/prerequisites';

const PAGE = readFileSync(join(repositoryRoot(), 'daemon/LIMITS.md'), 'utf8');
const EVE = 61_002;
const LIMITS = daemonLimits({ connections: 16_384, descriptors: 20_000 });

/** The rows of the table: name, default, errno and setting. */
function rows(): readonly (readonly string[])[] {
  const [table = ''] = PAGE.split('**Limits without a row**');
  const lines = table.split('\n').filter((line) => line.startsWith('| '));
  return lines.slice(2).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll('`', '')),
  );
}

function refusalOf(call: () => void) {
  try {
    call();
  } catch (error) {
    if (isVerbsError(error)) return error;
    throw error;
  }
  return undefined;
}

describe('the table of limits', () => {
  it('has a row for each limit, and no other', () => {
    const named = rows().map(([name]) => name);
    expect(named).toEqual([...LIMIT_NAMES, 'KIND of NAME']);
  });

  it.each(rows().filter(([name]) => name !== 'KIND of NAME'))(
    '%s: the refusal has the errno, the share and the setting',
    (name = '', _bounds, _default, code, setting) => {
      const budget = new DaemonBudget(LIMITS, {});
      const limit = LIMIT_NAMES.find((each) => each === name);
      if (limit === undefined) throw new Error(`no limit ${name}`);
      const refusal = refusalOf(() => budget.of(EVE).take(limit, Number.MAX_SAFE_INTEGER));
      expect(refusal).toMatchObject({
        code,
        message: expect.stringMatching(
          new RegExp(`user ${EVE} .* may have \\d+, .*${setting.replace(/,.*/, '')}`),
        ),
      });
    },
  );

  it('has a row for the objects of devices', () => {
    const budget = new DaemonBudget(LIMITS, {});
    const { capacity } = new DeviceRegistry(deviceProfile());
    budget.addDevice('roce0', capacity);
    expect(Object.keys(budget.uses())).toEqual([
      ...LIMIT_NAMES,
      ...Object.keys(capacity).map((kind) => `${kind} of roce0`),
    ]);
  });

  it('states the parts of a limit', () => {
    const limit = new SharedLimit(800, { what: 'things', remedy: 'raise it', code: 'ENOMEM' });
    expect(limit.shareOf(OWNER)).toBe(800);
    expect(limit.shareOf(EVE)).toBe(300);
    expect(PAGE).toContain('3/8 of the limit');
    expect(PAGE).toContain('A quarter of each limit is reserved');
  });

  it('states how many mappings may wait for the garbage collector', () => {
    expect(PAGE).toContain('A third of\nthe limit, at most 16,384,');
    expect([900, 3_000_000].map(uncollectedMappings)).toEqual([300, 16_384]);
  });

  it('states limits that a setting can only lower', () => {
    const given = { connections: 16_384, descriptors: 20_000 };
    const wanted = { associations: 1_000_000, roceConnections: 1_000_000 };
    expect(daemonLimits({ ...given, ...wanted })).toMatchObject({
      associations: 4096,
      roceConnections: 65_536,
    });
    expect(daemonLimits({ ...given, associations: 7 })).toMatchObject({ associations: 7 });
  });
});
