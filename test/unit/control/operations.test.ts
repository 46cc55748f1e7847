import { beforeEach, describe, expect, it } from 'vitest';
import { CONTROL_ROUTES, type ControlOperationName, LIST_MAX } from '#contract/protocol/control';
import { DAEMON_FRAME_MAX_BYTES } from '#contract/protocol/ipc-frames';
import { encodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { TRACE_LIMIT_MAX, TRACE_MS_MAX, TRACE_TEXT_MAX } from '#contract/protocol/trace-sample';
import { ControlError, OWNER } from '#daemon/control/operation';
import {
  executeNamed,
  executeOperation,
  isOperationName,
  OPERATIONS,
} from '#daemon/control/operations';
import { FixedTarget } from '#test/support/control-target';

const names = Object.keys(OPERATIONS) as ControlOperationName[];
/** Requests of operations that need fields. */
const REQUESTS: Readonly<Partial<Record<ControlOperationName, object>>> = {
  addFault: { kind: 'delay', ms: 5, probability: 0.5, seed: 7 },
  removeFault: { id: 3 },
};

const GUEST = { mayChange: false, isOwner: false };

let target: FixedTarget;

beforeEach(() => {
  target = new FixedTarget();
});

describe('the table of operations', () => {
  it('has a separate route for each', () => {
    expect(Object.keys(CONTROL_ROUTES)).toEqual(names);
    const places = names.map((name) => {
      const { method, path } = CONTROL_ROUTES[name];
      return `${method} ${path.replace(/:\w+/g, ':')}`;
    });
    expect(new Set(places).size).toBe(names.length);
  });

  it.each(names.filter((name) => name in REQUESTS || acceptsNothing(name)))(
    '%s replies as its schema describes',
    async (name) => {
      const reply = await executeNamed(target, name, REQUESTS[name] ?? {}, OWNER);
      expect(OPERATIONS[name].reply.parse(reply)).toEqual(reply);
    },
  );

  it.each(names)('%s refuses an unknown field, by name', async (name) => {
    const request = { ...REQUESTS[name], surplus: 1 };
    await expect(executeNamed(target, name, request, OWNER)).rejects.toMatchObject({
      code: 'EINVAL',
      field: 'surplus',
    });
  });

  it.each(names)('%s refuses input that is not an object', async (name) => {
    for (const request of [undefined, null, 1, 'x', []]) {
      await expect(executeNamed(target, name, request, OWNER)).rejects.toBeInstanceOf(ControlError);
    }
  });

  it('has no other names, not even those of Object', async () => {
    for (const name of ['', 'nothing', 'toString', '__proto__', 'constructor', 7, undefined]) {
      expect(isOperationName(name)).toBe(false);
      await expect(executeNamed(target, name, {}, OWNER)).rejects.toMatchObject({
        code: 'EOPNOTSUPP',
      });
    }
  });
});

describe('a read-only caller', () => {
  it.each(names)('%s: as its route says', async (name) => {
    const outcome = executeNamed(target, name, REQUESTS[name] ?? {}, GUEST);
    // A trace is only for the owner, like a tap.
    if (CONTROL_ROUTES[name].method === 'GET' && name !== 'recordTrace') await outcome;
    else await expect(outcome).rejects.toMatchObject({ code: 'EACCES' });
    expect(target.resets).toBe(0);
  });
});

describe('lists', () => {
  it('are returned in pages on request', async () => {
    const [first, second] = await executeOperation(target, 'listQPs', {}, OWNER);
    expect(await executeOperation(target, 'listQPs', { limit: 1 }, OWNER)).toEqual([first]);
    expect(await executeOperation(target, 'listQPs', { offset: 1, limit: 1 }, OWNER)).toEqual([
      second,
    ]);
    expect(await executeOperation(target, 'listQPs', { offset: 2 }, OWNER)).toEqual([]);
    expect(await executeOperation(target, 'listConnections', { offset: 1 }, OWNER)).toEqual([]);
  });

  it('fit a socket frame at their longest', async () => {
    const [qp] = target.objects('qps', {}).qps;
    if (qp === undefined) throw new Error('no queue pair');
    const address = { address: 'fe80:ffff:ffff:ffff:ffff:ffff:ffff:ffff%interface0', port: 65_535 };
    const longest = {
      ...qp,
      client: 2 ** 32,
      pid: 2 ** 31 - 1,
      program: 'fifteen-letters',
      device: 'x'.repeat(63),
      connection: { local: address, remote: address },
    };
    const list: IpcValue = Array.from({ length: LIST_MAX }, () => ({ ...longest }));
    expect(encodeValue(list).length).toBeLessThan(DAEMON_FRAME_MAX_BYTES);
  });

  it('contain the items that match every field of the filter', async () => {
    const all = await executeOperation(target, 'listQPs', {}, OWNER);
    expect(all).toHaveLength(2);
    expect(await executeOperation(target, 'listQPs', { device: 'b' }, OWNER)).toEqual([all[1]]);
    expect(await executeOperation(target, 'listQPs', { pid: 77 }, OWNER)).toEqual([all[0]]);
    expect(await executeOperation(target, 'listQPs', { device: 'b', pid: 77 }, OWNER)).toEqual([]);
    expect(await executeOperation(target, 'listConnections', { device: 'b' }, OWNER)).toEqual([]);
  });

  it.each([
    [{ pid: 'x' }, 'pid'],
    [{ pid: -1 }, 'pid'],
    [{ pid: 1.5 }, 'pid'],
    [{ pid: 2 ** 40 }, 'pid'],
    [{ device: '' }, 'device'],
    [{ device: 'x'.repeat(64) }, 'device'],
    [{ device: 5 }, 'device'],
    [{ limit: 0 }, 'limit'],
    [{ limit: 8193 }, 'limit'],
    [{ offset: -1 }, 'offset'],
  ])('refuse the filter %j', async (request, field) => {
    await expect(executeOperation(target, 'listMRs', request, OWNER)).rejects.toMatchObject({
      code: 'EINVAL',
      field,
      message: expect.stringContaining(field),
    });
  });
});

describe('a trace', () => {
  it.each([
    [{ limit: 0 }, 'limit'],
    [{ limit: TRACE_LIMIT_MAX + 1 }, 'limit'],
    [{ ms: 0 }, 'ms'],
    [{ ms: TRACE_MS_MAX + 1 }, 'ms'],
    [{ ms: 0.5 }, 'ms'],
    [{ device: '' }, 'device'],
    [{ qp: 0 }, 'qp'],
    [{ qp: 2 ** 24 }, 'qp'],
    [{ qp: '1' }, 'qp'],
  ])('is not recorded for %j', async (request, field) => {
    await expect(executeOperation(target, 'recordTrace', request, OWNER)).rejects.toMatchObject({
      code: 'EINVAL',
      field,
    });
  });

  it('fits a socket frame at its longest', () => {
    const name = 'x'.repeat(63);
    const text = `${'x'.repeat(TRACE_TEXT_MAX - 1)}…`;
    const qpn = 2 ** 24 - 1;
    const common = { micros: 2 ** 51 + 0.5, device: name, qpn, text };
    const work = { opcode: 'ATOMIC_FETCH_AND_ADD', wrId: `0x${'f'.repeat(16)}`, bytes: 2 ** 52 };
    const completion = { ...common, kind: 'cqe', ...work, status: 'IBV_WC_REM_INV_REQ_ERR' };
    const far = { peerDevice: name, peerQpn: qpn, link: 2 ** 32, by: 'peer', bytes: 65_535 };
    const fpdu = { ...common, kind: 'fpdu', ...far, opcode: 'Immediate Data with SE' };
    for (const longest of [completion, fpdu]) {
      const records = Array.from({ length: TRACE_LIMIT_MAX }, () => ({ ...longest }));
      expect(encodeValue({ records, lost: 2 ** 52 }).length).toBeLessThan(DAEMON_FRAME_MAX_BYTES);
    }
  });
});

describe('reset', () => {
  it('happens once for each request', async () => {
    await executeOperation(target, 'reset', {}, OWNER);
    expect(target.resets).toBe(1);
    await expect(executeOperation(target, 'reset', { hard: true }, OWNER)).rejects.toThrow(/hard/);
    expect(target.resets).toBe(1);
  });
});

function acceptsNothing(name: ControlOperationName): boolean {
  return OPERATIONS[name].request.safeParse({}).success;
}
