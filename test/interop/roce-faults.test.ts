/** Faults of packets, as unmodified programs on a RoCE device notice them, and as rxe's counters count them. */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { type EndedProgram, listens, ShimProgram } from '../support/shim-programs.ts';

/** Messages of three packets, checked by both ends. */
const RC = 'ibv_rc_pingpong -g 1 -c -m 1024 -s 3000 -n 100';

let rig: RoceRig;

beforeAll(async () => {
  rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.10'], transport: 'roce' });
});
afterEach(() => rig.host.faults.clear());
afterAll(() => rig.stop());

function counters(): Readonly<Record<string, number>> {
  return rig.host.devices[0]?.hwCounters ?? {};
}

/** Runs both ends under the faults; returns client, server and the growth of the counters. */
async function under(specs: readonly FaultSpec[], command: string) {
  const before = counters();
  const faults = specs.map((spec) => rig.host.faults.add(spec, undefined));
  const port = await freePort();
  const words = [...command.split(' '), '-p', String(port)];
  const server = new ShimProgram(words, rig.environment);
  await listens(port, server);
  const client = new ShimProgram([...words, '127.0.0.1'], rig.environment);
  const asked = await client.end();
  // A server whose client failed waits forever.
  if (asked.status !== 0) await server.kill();
  const served = await server.end();
  const grown = (name: string) => (counters()[name] ?? 0) - (before[name] ?? 0);
  return { asked, served, grown, fired: faults.map(({ status }) => status.fired) };
}

function expectSuccess({ asked, served }: { asked: EndedProgram; served: EndedProgram }): void {
  const output = `${asked.output}${served.output}`;
  expect([asked.status, served.status], output).toEqual([0, 0]);
  expect(output).not.toContain('invalid data');
}

describeWith(['rdma-programs'], 'ping-pong over RoCE under faults', () => {
  it.each<[FaultSpec, string]>([
    [{ kind: 'drop', probability: 0.03, seed: 1 }, 'completer_retry_err'],
    [{ kind: 'drop', opcode: 'acknowledge', every: 20 }, 'duplicate_request'],
    [{ kind: 'duplicate', probability: 0.1, seed: 2 }, 'duplicate_request'],
    [{ kind: 'reorder', opcode: 'send', every: 10 }, 'out_of_seq_request'],
    [{ kind: 'corrupt-icrc', opcode: 'send', every: 50 }, 'out_of_seq_request'],
    [{ kind: 'delay', ms: 2, every: 10 }, 'rcvd_pkts'],
    [{ kind: 'rnr', every: 10 }, 'rcvd_rnr_err'],
    [{ kind: 'nak', syndrome: 'psn-sequence', every: 10 }, 'rcvd_seq_err'],
  ])('%j: all data arrives, and %s counts', async (spec, counter) => {
    const ended = await under([spec], RC);
    expectSuccess(ended);
    expect(ended.fired[0]).toBeGreaterThan(0);
    expect(ended.grown(counter)).toBeGreaterThan(0);
    expect(ended.grown('retry_exceeded_err')).toBe(0);
  });

  it('all of them at once', async () => {
    const often = { probability: 0.02, seed: 3 };
    const kinds = ['drop', 'duplicate', 'reorder', 'corrupt-icrc'] as const;
    const ended = await under(
      [...kinds.map((kind) => ({ kind, ...often })), { kind: 'delay', ms: 1, ...often }],
      RC,
    );
    expectSuccess(ended);
  });

  it('corrupt-icrc: dropped and counted by the receiver', async () => {
    const before = rig.host.devices[0]?.rocePort?.counters.icrcErrors ?? 0;
    const ended = await under([{ kind: 'corrupt-icrc', nth: 5 }], RC);
    expectSuccess(ended);
    expect(rig.host.devices[0]?.rocePort?.counters.icrcErrors).toBe(before + 1);
  });

  it('drop of every packet: the client gives up, with a transport retry error', async () => {
    const { asked, grown } = await under([{ kind: 'drop' }], RC);
    expect(asked.status).not.toBe(0);
    expect(asked.output).toContain('Failed status transport retry counter exceeded (12)');
    expect(grown('retry_exceeded_err')).toBeGreaterThan(0);
    expect(grown('completer_retry_err')).toBeGreaterThanOrEqual(7);
  });

  it.each([
    ['remote-access', 'remote access error (10)'],
    ['invalid-request', 'remote invalid request error (9)'],
    ['remote-operation', 'remote operation error (11)'],
  ] as const)('nak %s: the client fails with %s', async (syndrome, text) => {
    const { asked } = await under([{ kind: 'nak', syndrome, nth: 2 }], RC);
    expect(asked.output).toContain(`Failed status ${text}`);
  });

  it('duplicates of datagrams and of UC', async () => {
    expectSuccess(
      await under([{ kind: 'duplicate', every: 3 }], `ibv_uc_pingpong ${RC.slice(16)}`),
    );
  });

  it('delay of datagrams', async () => {
    expectSuccess(await under([{ kind: 'delay', ms: 3 }], 'ibv_ud_pingpong -g 1 -c -n 20'));
  });
});
