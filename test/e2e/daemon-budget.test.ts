/** Clients that together exhaust the limits: the daemon's reserve keeps it reachable. */
import { afterEach, describe, expect, it } from 'vitest';
import { emitHello, Role } from '#contract/protocol/ipc-frames';
import { ERRNO } from '#contract/verbs/errors';
import type { PD, Provider } from '#contract/verbs/provider';
import type { DaemonConfigInput } from '#daemon/main/config';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { runCommand } from '../support/cli-process.ts';
import { DaemonProcess, printed, startProgram } from '../support/daemon-process.ts';
import { IpcClient } from '../support/ipc-client.ts';
import { failure } from '../support/outcomes.ts';

let daemon: DaemonProcess;
const providers: Provider[] = [];
const clients: IpcClient[] = [];

afterEach(async () => {
  await Promise.all(providers.splice(0).map((provider) => provider.close()));
  for (const client of clients.splice(0)) client.socket.destroy();
  await daemon.clean();
});

async function newPD(): Promise<PD> {
  const provider = await connectDaemon({ socketPath: daemon.socketPath });
  providers.push(provider);
  return await (await provider.open()).allocPD();
}

/** The error of the first refused call of `take`, over several clients. */
async function exhausted(limits: DaemonConfigInput['limits'], take: (pd: PD) => Promise<unknown>) {
  daemon = await DaemonProcess.start({ limits });
  const pds = await Promise.all(Array.from({ length: 5 }, newPD));
  for (let round = 0; round < 1_000; round += 1) {
    const outcomes = await Promise.allSettled(pds.map(take));
    const refused = outcomes.find((outcome) => outcome.status === 'rejected');
    if (refused !== undefined) return refused.reason;
  }
  return undefined;
}

describe('the total of all clients', () => {
  it('is bounded in objects', async () => {
    const refusal = await exhausted({ objects: 100 }, (pd) => pd.context.allocPD());
    expect(refusal).toEqual(failure('ENOMEM', 'raise limits.objects'));
    const { health } = await daemon.status();
    expect(health.limits['objects']).toEqual({ used: 100, limit: 100 });
    await providers.pop()?.close();
    await newPD();
  });

  it('is bounded in bytes of shared memory', async () => {
    const limits = { sharedBytes: 2 ** 20 };
    const refusal = await exhausted(limits, (pd) => pd.allocMR(65_536, 1));
    expect(refusal).toEqual(failure('ENOMEM', 'raise limits.sharedBytes'));
    const { health } = await daemon.status();
    expect(health.limits['sharedBytes']).toEqual({ used: 2 ** 20, limit: 2 ** 20 });
    await providers.pop()?.close();
    await (await newPD()).allocMR(65_536, 1);
  });

  it('is bounded in mappings', async () => {
    const refusal = await exhausted({ mappings: 64 }, (pd) => pd.allocMR(4096, 1));
    expect(refusal).toEqual(failure('ENOMEM', 'raise limits.mappings'));
    const { health } = await daemon.status();
    expect(health.limits['mappings']).toEqual({ used: 64, limit: 64 });
  });
});

describe('on a small heap', () => {
  it('programs take the largest objects until they are refused, and the daemon still answers', async () => {
    daemon = await DaemonProcess.start({}, 'pipe', ['env', 'NODE_OPTIONS=--max-old-space-size=64']);
    const { objects, ids } = (await daemon.status()).health.limits;
    expect(objects?.limit).toBeLessThanOrEqual(16 * 2 ** 10);
    expect(ids?.limit).toBeLessThan(4 * 2 ** 10);
    const pds = await Promise.all(Array.from({ length: 4 }, newPD));
    const takeAll = async (take: (pd: PD) => Promise<unknown>): Promise<unknown> => {
      for (;;) {
        const takes = pds.flatMap((pd) => Array.from({ length: 64 }, () => take(pd)));
        const outcomes = await Promise.allSettled(takes);
        const refused = outcomes.find((outcome) => outcome.status === 'rejected');
        if (refused !== undefined) return refused.reason;
      }
    };
    const refusal = { code: 'ENOMEM', message: expect.stringContaining('raise limits.') };
    expect(await takeAll((pd) => pd.context.provider.createId())).toMatchObject(refusal);
    expect(await takeAll((pd) => pd.allocMR(64, 1))).toMatchObject(refusal);
    const { health } = await daemon.status();
    expect(health.limits['objects']?.used).toBe(objects?.limit);
    await Promise.all(providers.splice(0).map((provider) => provider.close()));
    await newPD();
  });
});

describe('with few connections', () => {
  const FEW = 8;

  it('status and reset work when programs hold all connections', async () => {
    daemon = await DaemonProcess.start({ connectionsMax: FEW });
    for (let count = 0; count < FEW; count += 1) {
      clients.push(await IpcClient.open(daemon.socketPath, Role.control));
    }
    const late = new IpcClient(daemon.socketPath);
    clients.push(late);
    late.send(emitHello(Role.control));
    expect(await late.welcome()).toMatchObject({
      errno: ERRNO.ENOMEM.number,
      text: expect.stringContaining('at most 8 connections; raise connectionsMax'),
    });
    // Nor do silent connections keep the administrator out.
    const silent = Array.from({ length: 40 }, () => new IpcClient(daemon.socketPath));
    clients.push(...silent);
    const { health } = await daemon.status();
    expect(health.limits['connections']).toEqual({ used: FEW, limit: FEW });
    const control = new DaemonControl({ socketPath: daemon.socketPath });
    expect(await control.reset()).toMatchObject({ clients: FEW });
    await newPD();
  });

  it('accepts only the reserve of administrators', async () => {
    daemon = await DaemonProcess.start({ connectionsMax: 1 });
    clients.push(await IpcClient.open(daemon.socketPath, Role.control));
    const welcomes: number[] = [];
    for (let count = 0; count < 20; count += 1) {
      const admin = await IpcClient.open(daemon.socketPath, Role.admin);
      clients.push(admin);
      welcomes.push((await admin.welcome()).errno);
    }
    expect(welcomes).toEqual([
      ...Array.from({ length: 16 }, () => 0),
      ...Array.from({ length: 4 }, () => ERRNO.ENOMEM.number),
    ]);
  });
});

it('shared memory is released even at the limit of mappings', async () => {
  daemon = await DaemonProcess.start();
  expect(await printed(startProgram('mappings-full'), /^(.*)\n/)).toBe('released');
});

describe('with few descriptors', () => {
  const FEW = ['prlimit', '--nofile=256:256'];
  const TOO_FEW = ['prlimit', '--nofile=64:64'];

  /** Allocates shared memory that the client never maps: each holds a descriptor of the daemon. */
  async function takeDescriptors(): Promise<unknown> {
    const client = await IpcClient.open(daemon.socketPath, Role.control);
    clients.push(client);
    for (let id = 1; ; id += 1) {
      client.request(id, ['allocBuffer', { lengthBytes: 4096 }]);
      const { value } = await client.frame();
      if (Array.isArray(value)) return value;
    }
  }

  it('status, HTTP and reset work when clients have taken all others', async () => {
    daemon = await DaemonProcess.start(
      { http: { address: '127.0.0.1', port: 0, noToken: true } },
      'pipe',
      FEW,
    );
    const { http } = await daemon.status();
    expect(await takeDescriptors()).toEqual(['ENOMEM', expect.stringContaining('ulimit -n')]);
    // Further clients receive the reason; silent ones do not keep others out.
    const silent = Array.from({ length: 40 }, () => new IpcClient(daemon.socketPath));
    clients.push(...silent);
    const late = new IpcClient(daemon.socketPath);
    clients.push(late);
    late.send(emitHello(Role.control));
    expect(await late.welcome()).toMatchObject({
      errno: ERRNO.EMFILE.number,
      text: expect.stringContaining('ulimit -n'),
    });
    const { health } = await daemon.status();
    const { used = 0, limit } = health.limits['descriptors'] ?? {};
    expect(limit).toBe(256);
    expect(used).toBeGreaterThan(256 - 64);
    for (const path of ['healthz', 'metrics']) {
      expect((await fetch(`${http?.url}/${path}`)).status).toBe(200);
    }
    const control = new DaemonControl({ socketPath: daemon.socketPath });
    expect(await control.reset()).toMatchObject({ clients: 1 });
    await newPD();
  });

  it('the daemon reports in one line that it needs more', async () => {
    const ended = await runCommand(['start', '--socket', '/nowhere/x.sock'], {}, TOO_FEW);
    expect(ended.status).toBe(1);
    expect(ended.stderr).toMatch(
      /^iwarpd: cannot start: the limit of open files is 64, and the daemon needs 256; .*\n$/,
    );
  });
});
