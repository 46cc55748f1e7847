import { describe, expect, it } from 'vitest';
import { FAULT_KINDS, type FaultKind, faultKind } from '#contract/protocol/faults';
import { OWNER } from '#daemon/control/operation';
import { executeOperation } from '#daemon/control/operations';
import { FixedTarget } from '#test/support/control-target';

const VALUES = {
  ms: 1,
  bytesPerSecond: 1,
  bytes: 1,
  afterBytes: 0,
  syndrome: 'remote-access',
  errno: 'EIO',
  ird: 1,
  ord: 1,
};

const kinds = Object.keys(FAULT_KINDS) as FaultKind[];

async function add(spec: object): Promise<unknown> {
  return await executeOperation(new FixedTarget(), 'addFault', spec as { kind: FaultKind }, OWNER);
}

/** The fields that a kind requires. */
function least(kind: FaultKind): Record<string, unknown> {
  const { needs } = faultKind(kind);
  const fields = kind === 'mpa-depths' ? (['ird'] as const) : needs;
  return { kind, ...Object.fromEntries(fields.map((field) => [field, VALUES[field]])) };
}

describe('a fault request', () => {
  it.each(kinds)('%s accepts its required fields, and a trigger', async (kind) => {
    expect(await add(least(kind))).toMatchObject({ spec: { kind } });
    const trigger = { once: true, probability: 0.5, seed: 4 };
    expect(await add({ ...least(kind), ...trigger })).toMatchObject({ spec: trigger });
    expect(await add({ ...least(kind), device: 'a', nth: 3 })).toMatchObject({ spec: { nth: 3 } });
  });

  it.each(kinds)('%s is refused without a required field, naming the field', async (kind) => {
    for (const field of faultKind(kind).needs) {
      const { [field]: _, ...rest } = least(kind);
      await expect(add(rest)).rejects.toMatchObject({ code: 'EINVAL', field });
    }
  });

  it.each(kinds)('%s is refused with a field it does not have, naming the field', async (kind) => {
    const { needs, takes } = faultKind(kind);
    for (const [field, value] of Object.entries(VALUES)) {
      if ([...needs, ...takes].some((each) => each === field)) continue;
      const wrong = add({ ...least(kind), [field]: value });
      await expect(wrong).rejects.toMatchObject({ code: 'EINVAL', field });
    }
  });

  it.each([
    [{}, 'kind'],
    [{ kind: 'flood' }, 'kind'],
    [{ kind: 'delay', ms: 0 }, 'ms'],
    [{ kind: 'delay', ms: 1.5 }, 'ms'],
    [{ kind: 'delay', ms: '5' }, 'ms'],
    [{ kind: 'delay', ms: 3_600_001 }, 'ms'],
    [{ kind: 'delay', ms: 1, nth: 0 }, 'nth'],
    [{ kind: 'delay', ms: 1, nth: 2, every: 2 }, 'every'],
    [{ kind: 'delay', ms: 1, probability: 0 }, 'probability'],
    [{ kind: 'delay', ms: 1, probability: 1.01 }, 'probability'],
    [{ kind: 'delay', ms: 1, seed: 1 }, 'seed'],
    [{ kind: 'delay', ms: 1, probability: 0.1, seed: 2 ** 32 }, 'seed'],
    [{ kind: 'delay', ms: 1, once: 'yes' }, 'once'],
    [{ kind: 'delay', ms: 1, device: '' }, 'device'],
    [{ kind: 'delay', ms: 1, qp: 2 ** 24 }, 'qp'],
    [{ kind: 'delay', ms: 1, direction: 'up' }, 'direction'],
    [{ kind: 'delay', ms: 1, opcode: 'push' }, 'opcode'],
    [{ kind: 'delay', ms: 1, opcode: 'send', direction: 'in' }, 'opcode'],
    [{ kind: 'delay', ms: 1, verb: 'regMR' }, 'verb'],
    [{ kind: 'delay', ms: 1, pid: 5 }, 'pid'],
    [{ kind: 'corrupt-crc', direction: 'out' }, 'direction'],
    [{ kind: 'corrupt-crc', opcode: 'mpa-reply' }, 'opcode'],
    [{ kind: 'qp-fatal', opcode: 'mpa-request' }, 'opcode'],
    [{ kind: 'mpa-depths' }, 'ird'],
    [{ kind: 'mpa-depths', ird: 1, opcode: 'send' }, 'opcode'],
    [{ kind: 'mpa-depths', ord: 0x3fff }, 'ord'],
    [{ kind: 'mpa-silent', qp: 1 }, 'qp'],
    [{ kind: 'slice', bytes: 0 }, 'bytes'],
    [{ kind: 'errno', errno: 'EWHAT' }, 'errno'],
    [{ kind: 'errno', errno: 'EIO', verb: 'deregMR' }, 'verb'],
    [{ kind: 'errno', errno: 'EIO', peer: '10.0.0.1' }, 'peer'],
    [{ kind: 'errno', errno: 'EIO', whatever: 1 }, 'whatever'],
  ])('%j is refused for %s', async (spec, field) => {
    await expect(add(spec)).rejects.toMatchObject({ code: 'EINVAL', field });
  });

  it('names one fault to remove', async () => {
    const target = new FixedTarget();
    for (const id of [0, -1, 1.5, '1', undefined]) {
      const removing = executeOperation(target, 'removeFault', { id }, OWNER);
      await expect(removing).rejects.toMatchObject({ code: 'EINVAL', field: 'id' });
    }
  });
});
