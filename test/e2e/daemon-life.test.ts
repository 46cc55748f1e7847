import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { emitHello, Role } from '#contract/protocol/ipc-frames';
import { ERRNO } from '#contract/verbs/errors';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { startDaemon } from '#daemon/main/daemon';
import { createLog } from '#daemon/main/log';
import { DaemonChannel } from '#verbs-api/client/daemon-channel';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonProcess } from '../support/daemon-process.ts';
import { DaemonRig } from '../support/daemon-rig.ts';
import { IpcClient } from '../support/ipc-client.ts';
import { failure } from '../support/outcomes.ts';
import { until } from '../support/patience.ts';

const NOBODY = 65_534;
const asRoot = process.getuid?.() === 0;

describe('the socket’s path', () => {
  let rig: DaemonRig;
  const parts = { log: createLog('silent') };

  beforeEach(async () => {
    rig = await DaemonRig.start();
  });
  afterEach(() => rig.stop());

  it('is created private, with a file beside it that identifies the daemon', async () => {
    const socketPath = join(rig.directory, 'deeper', 'still', 's.sock');
    const daemon = await startDaemon({ socketPath }, parts);
    expect(statSync(join(rig.directory, 'deeper')).mode & 0o777).toBe(0o700);
    expect(statSync(join(rig.directory, 'deeper', 'still')).mode & 0o777).toBe(0o700);
    expect(statSync(socketPath).mode & 0o777).toBe(0o600);
    const run: unknown = JSON.parse(readFileSync(`${socketPath}.run`, 'utf8'));
    expect(run).toMatchObject({ pid: process.pid, socketPath });
    await daemon.stop();
    expect(existsSync(socketPath)).toBe(false);
    expect(existsSync(`${socketPath}.run`)).toBe(false);
  });

  it('EADDRINUSE if a daemon is already running, which keeps running', async () => {
    const { socketPath } = rig;
    await expect(startDaemon({ socketPath }, parts)).rejects.toEqual(
      failure('EADDRINUSE', `pid ${process.pid}`),
    );
    const provider = await connectDaemon({ socketPath });
    await provider.close();
  });

  it('only one of several daemons that start at once gets it', async () => {
    const socketPath = join(rig.directory, 'd', 's.sock');
    const outcomes = await Promise.allSettled(
      Array.from({ length: 4 }, () => startDaemon({ socketPath }, parts)),
    );
    const started = outcomes.filter((outcome) => outcome.status === 'fulfilled');
    expect(started).toHaveLength(1);
    for (const { value } of started) await value.stop();
  });

  it('EACCES for a directory where others can replace the socket', async () => {
    const open = join(rig.directory, 'open');
    mkdirSync(open);
    chmodSync(open, 0o777);
    const options = { socketPath: join(open, 's.sock') };
    await expect(startDaemon(options, parts)).rejects.toEqual(failure('EACCES', '777'));
    expect(existsSync(options.socketPath)).toBe(false);
  });

  it.each([0o755, 0o1777])(
    'starts in a directory of mode %o, with a socket of 600',
    async (mode) => {
      const directory = join(rig.directory, 'safe');
      mkdirSync(directory);
      chmodSync(directory, mode);
      const socketPath = join(directory, 's.sock');
      const daemon = await startDaemon({ socketPath }, parts);
      expect(statSync(socketPath).mode & 0o777).toBe(0o600);
      await daemon.stop();
    },
  );

  it.runIf(asRoot)('EACCES for a directory of another user', async () => {
    const theirs = join(rig.directory, 'theirs');
    mkdirSync(theirs, { mode: 0o700 });
    const { chownSync } = await import('node:fs');
    chownSync(theirs, NOBODY, NOBODY);
    const options = { socketPath: join(theirs, 's.sock') };
    await expect(startDaemon(options, parts)).rejects.toEqual(failure('EACCES', `user ${NOBODY}`));
  });

  it('EINVAL for a file that is not a socket, which stays', async () => {
    const socketPath = join(rig.directory, 'precious');
    writeFileSync(socketPath, 'data');
    await expect(startDaemon({ socketPath }, parts)).rejects.toMatchObject({ code: 'EINVAL' });
    expect(readFileSync(socketPath, 'utf8')).toBe('data');
  });

  it('EACCES if no socket can be created', async () => {
    await expect(startDaemon({ socketPath: '/proc/iwarpd.sock' }, parts)).rejects.toMatchObject({
      code: 'EACCES',
      message: expect.stringMatching(
        /^cannot create the socket \/proc\/iwarpd.sock: .*; choose another path/,
      ),
    });
  });

  it('EADDRNOTAVAIL for a link-local address without its interface', async () => {
    const devices = [{ name: 'a', addresses: ['fe80::1'] }];
    await expect(startDaemon({ devices }, parts)).rejects.toMatchObject({
      code: 'EADDRNOTAVAIL',
      message: 'device a: fe80::1 is link-local: add its interface, for example fe80::1%eth0',
    });
  });

  it('EINVAL for a path that is too long', async () => {
    const socketPath = join(rig.directory, 'x'.repeat(120));
    await expect(startDaemon({ socketPath }, parts)).rejects.toMatchObject({ code: 'EINVAL' });
  });
});

describe('options', () => {
  it.each<[string, object]>([
    ['unknownOption', { unknownOption: 1 }],
    ['connectionsMax', { connectionsMax: 0 }],
    ['devices.0.profile', { devices: [{ name: 'a', profile: { maxQq: 1 } }] }],
    ['devices.0.wire', { devices: [{ name: 'a', wire: { mpaRevision: 3 } }] }],
    ['loopback', { loopback: 'carrier pigeon' }],
    ['memoryTiers', { memoryTiers: ['telepathy'] }],
    ['two iWARP devices', { devices: [{ name: 'a' }, { name: 'b' }] }],
  ])('EINVAL that names %s', async (name, options) => {
    await expect(startDaemon(options)).rejects.toEqual(failure('EINVAL', name));
  });
});

describe('a client with more objects than a turn destroys', () => {
  let rig: DaemonRig;
  let link: DaemonChannel;

  beforeEach(async () => {
    rig = await DaemonRig.start();
    link = await DaemonChannel.connect({ socketPath: rig.socketPath });
    const { context } = await link.request('openDevice', { name: undefined });
    const more = () => link.request('allocPD', { context });
    await Promise.all(Array.from({ length: 1500 }, more));
  });
  afterEach(() => rig.stop());

  it('leaves no objects, and is destroyed in pieces', async () => {
    const shares = vi.spyOn(ClientContext.prototype, 'close');
    await link.close();
    await until('the end of the client', async () => {
      const { clients } = await queryDaemon('status', {}, { socketPath: rig.socketPath });
      return clients.length === 0;
    });
    const costs = shares.mock.results.map(({ value }) => Number(value));
    shares.mockRestore();
    // A turn destroys as many objects as its time allows: see EndingOwners.
    expect(Math.max(...costs)).toBeLessThan(100);
    expect(costs.reduce((sum, cost) => sum + cost, 0)).toBe(1501);
  });

  it('ends with a daemon that stops at once', async () => {
    await Promise.all([link.close(), rig.daemon.stop()]);
  });
});

describe('without a daemon', () => {
  it('ENODEV with the way to start one', async () => {
    await expect(connectDaemon({ socketPath: '/nonexistent/s.sock' })).rejects.toMatchObject({
      code: 'ENODEV',
      message: expect.stringMatching(/\/nonexistent\/s\.sock.*iwarpd start/),
    });
  });

  it('EPROTO if another program listens', async () => {
    const rig = await DaemonRig.start();
    const path = join(rig.directory, 'other');
    const server = createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await new Promise<void>((resolve) => server.listen(path, resolve));
    await expect(connectDaemon({ socketPath: path })).rejects.toMatchObject({ code: 'EPROTO' });
    server.close();
    await rig.stop();
  });
});

describe('a daemon as a process', () => {
  let daemon: DaemonProcess;

  beforeEach(async () => {
    daemon = await DaemonProcess.start();
  });
  afterEach(() => daemon.clean());

  it.each(['SIGTERM', 'SIGINT'] as const)('%s: ends with status 0 and no file', async (signal) => {
    const provider = await connectDaemon({ socketPath: daemon.socketPath });
    expect(await daemon.end(signal)).toBe(0);
    expect(existsSync(daemon.socketPath)).toBe(false);
    expect(existsSync(`${daemon.socketPath}.run`)).toBe(false);
    await provider.close();
  });

  it('lost: pending requests reject with EIO, and the link reports the loss once', async () => {
    const link = await DaemonChannel.connect({ socketPath: daemon.socketPath });
    const losses: Error[] = [];
    link.onLost = (error) => losses.push(error);
    daemon.signal('SIGSTOP');
    const refused = expect(link.request('listDevices', {})).rejects.toMatchObject({ code: 'EIO' });
    await daemon.end('SIGKILL');
    await refused;
    expect(losses).toHaveLength(1);
    await expect(link.request('listDevices', {})).rejects.toMatchObject({ code: 'EIO' });
    await expect(link.map({ token: '0'.repeat(32), lengthBytes: 1 })).rejects.toMatchObject({
      code: 'EIO',
    });
    link.doorbell(1);
    await link.close();
  });

  it('stopped: its clients learn why', async () => {
    const link = await DaemonChannel.connect({ socketPath: daemon.socketPath });
    const lost = new Promise<Error>((resolve) => {
      link.onLost = resolve;
    });
    await daemon.end('SIGTERM');
    expect(await lost).toMatchObject({ code: 'EIO', message: 'the daemon is stopping' });
  });

  it('dead: ECONNREFUSED for clients, and the next daemon replaces its socket', async () => {
    await daemon.end('SIGKILL');
    const { socketPath } = daemon;
    expect(existsSync(socketPath)).toBe(true);
    await expect(connectDaemon({ socketPath })).rejects.toEqual(
      failure('ECONNREFUSED', 'iwarpd start'),
    );
    const next = await startDaemon({ socketPath }, { log: createLog('silent') });
    const status = await queryDaemon('status', {}, { socketPath });
    expect(status).toMatchObject({ pid: process.pid, socketPath, clients: [] });
    expect(status.devices[0]?.counters).toMatchObject({ completions: 0 });
    await next.stop();
  });
});

describe.runIf(asRoot)('users', () => {
  /** Connects with the credentials of another user. */
  function connectAsNobody(path: string): IpcClient {
    process.seteuid?.(NOBODY);
    try {
      return new IpcClient(path);
    } finally {
      process.seteuid?.(0);
    }
  }

  it('another user is refused with EACCES', async () => {
    const rig = await DaemonRig.start();
    chmodSync(rig.directory, 0o755);
    chmodSync(rig.socketPath, 0o666);
    const client = connectAsNobody(rig.socketPath);
    expect(await client.welcome()).toMatchObject({ errno: ERRNO.EACCES.number });
    await client.closed();
    expect(rig.log.some((line) => line.includes(`user ${NOBODY} may not use`))).toBe(true);
    await rig.stop();
  });

  it('another user is served if the daemon allows it, but not through process_vm', async () => {
    const rig = new DaemonRig();
    chmodSync(rig.directory, 0o755);
    const { socketPath } = rig;
    const daemon = await startDaemon(
      { socketPath, allowOtherUsers: true },
      { log: createLog('silent') },
    );
    process.seteuid?.(NOBODY);
    const connecting = connectDaemon({ socketPath });
    // The control connection exists already; others open on demand.
    const provider = await connecting;
    const context = await provider.open();
    const pd = await context.allocPD();
    const mr = await pd.regMR(new Uint8Array(64), 1);
    process.seteuid?.(0);
    expect(mr.tier).toBe('agent');
    expect(mr.tierReason).toContain('another user');
    await provider.close();

    process.seteuid?.(NOBODY);
    const looking = queryDaemon('status', {}, { socketPath });
    const resetting = queryDaemon('reset', {}, { socketPath });
    const watching = new IpcClient(socketPath);
    process.seteuid?.(0);
    watching.send(emitHello(Role.tap));
    expect(await watching.welcome()).toMatchObject({ errno: ERRNO.EACCES.number });
    expect(await looking).toMatchObject({ pid: process.pid });
    await expect(resetting).rejects.toMatchObject({ code: 'EACCES' });
    await daemon.stop();
    await rig.stop();
  });
});
