/** Isolated daemons: the same addresses and ports, without traffic between them. */
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { Provider } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { startPrivateDaemon } from '#verbs-api/testing/private-daemon';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { failure } from '../support/outcomes.ts';

const HOST = '127.0.0.1';
const ELSEWHERE = '10.77.9.9';

const folder = new CommandFolder();
const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  await folder.clean();
});

/** A TCP server of the host, and its port. */
async function hostServer(): Promise<number> {
  const server: Server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(0, HOST, resolve));
  closers.push(() => new Promise((resolve) => server.close(resolve)));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

async function clientOf(socketPath: string): Promise<Provider> {
  const provider = await connectDaemon({ socketPath });
  closers.push(() => provider.close());
  return provider;
}

/** Listens at the port, and answers one message with another. */
async function exchange(provider: Provider, port: number, word: string): Promise<string> {
  await using listener = await listen(provider, { host: HOST, port });
  const [server, client] = await Promise.all([
    listener.accept({ messages: true }),
    connect(provider, { host: HOST, port, messages: true }),
  ]);
  await server.send(word);
  const { value } = await client.messages().next();
  await client.close();
  await server.close();
  return Buffer.from(value ?? []).toString();
}

/** The sockets of a process in the kernel's tables of internet protocols. */
function internetSockets(pid: number): string[] {
  const own = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return [];
      }
    }),
  );
  return ['tcp', 'tcp6', 'udp', 'udp6', 'raw', 'raw6'].flatMap((table) => {
    const lines = readFileSync(`/proc/net/${table}`, 'utf8').split('\n').slice(1);
    return lines.filter((line) => own.has(line.trim().split(/\s+/)[9] ?? ''));
  });
}

describe('instances', () => {
  it('use the same port as each other and as a TCP server of the host, without a socket', async () => {
    const port = await hostServer();
    const environment = { XDG_RUNTIME_DIR: folder.path, IWARPD_SOCKET: '' };
    const providers = await Promise.all(
      ['one', 'two'].map(async (name) => {
        const words = ['start', '--instance', name, '--log-level', 'warn'];
        await folder.start(words, environment).until(/ready/);
        return await clientOf(folder.file(`iwarpd/${name}.sock`));
      }),
    );
    const listeners = await Promise.all(
      providers.map((provider) => listen(provider, { host: '0.0.0.0', port })),
    );
    const words = await Promise.all(
      listeners.map(async (listener, index) => {
        const provider = providers[index] as Provider;
        const [server, client] = await Promise.all([
          listener.accept({ messages: true }),
          connect(provider, { host: HOST, port, messages: true }),
        ]);
        await server.send(`daemon ${index}`);
        const { value } = await client.messages().next();
        return Buffer.from(value ?? []).toString();
      }),
    );
    expect(words).toEqual(['daemon 0', 'daemon 1']);
    for (const name of ['one', 'two']) {
      const status = await runCommand(['status', '--instance', name, '--json'], environment);
      const { pid, network } = JSON.parse(status.stdout) as { pid: number; network: string };
      expect(network).toBe('isolated');
      expect(internetSockets(pid)).toEqual([]);
    }
    const text = await runCommand(['status', '--instance', 'one'], environment);
    expect(text.stdout).toContain('network       isolated: its devices reach each other only');
    const doctor = await runCommand(['doctor', '--instance', 'one'], environment);
    expect(doctor.stdout).toContain('network isolated');
  });

  it.each([
    ['a file', ['--config', 'FILE']],
    ['an option', ['--network', 'host']],
  ])('reach other hosts if %s says so', async (_, given) => {
    const file = folder.file('settings.json');
    writeFileSync(file, '{ "network": "host" }');
    const environment = { XDG_RUNTIME_DIR: folder.path, IWARPD_SOCKET: '' };
    const words = given.map((word) => (word === 'FILE' ? file : word));
    await folder.start(['start', '--instance', 'x', ...words], environment).until(/ready/);
    const status = await runCommand(['status', '--instance', 'x'], environment);
    expect(status.stdout).toMatch(/^network {7}host$/m);
  });
});

describe('an isolated daemon', () => {
  it('explains why it does not reach another host', async () => {
    const daemon = await startPrivateDaemon();
    closers.push(() => daemon.stop());
    const provider = await daemon.connect();
    closers.push(() => provider.close());
    await expect(connect(provider, { host: ELSEWHERE, port: 7174 })).rejects.toEqual(
      failure('ENETUNREACH', '--network host reaches other hosts and daemons'),
    );
    expect(daemon.output).toContain(`no route to ${ELSEWHERE}`);
  });

  it('has devices at any address', async () => {
    const socketPath = folder.file('s');
    const devices = [`a=${ELSEWHERE}`, 'b=fd77::9', 'r=roce:10.77.9.8'];
    const words = devices.flatMap((device) => ['--device', device]);
    await folder.daemon(socketPath, ['--network', 'isolated', ...words]);
    const provider = await clientOf(socketPath);
    for (const host of [ELSEWHERE, 'fd77::9', '10.77.9.8']) {
      await using listener = await listen(provider, { host, port: 700 });
      const [server, client] = await Promise.all([
        listener.accept({ messages: true }),
        connect(provider, { host, port: 700, messages: true }),
      ]);
      expect(client.id.peerAddress).toMatchObject({ address: host });
      await client.close();
      await server.close();
    }
  });

  it.each([
    [['--device', 'x=native:siw0'], 'x is a native device, which needs network "host"'],
    [['--device', 'x=kernel-sctp:127.0.0.9'], "device x: the kernel's SCTP does not run"],
    [['--loopback', 'tcp'], 'loopback tcp: an isolated network has no packets'],
    [['--device', 'x=fe80::1'], 'fe80::1 is link-local: add its interface'],
  ])('refuses %j', async (words, text) => {
    const start = ['start', '--socket', folder.file('s'), '--network', 'isolated'];
    const { status, stderr } = await runCommand([...start, ...words]);
    expect(stderr).toContain(text);
    expect(status).toBe(1);
  });
});

describe('embedded devices', () => {
  it('have their own ports if they are isolated', async () => {
    const port = await hostServer();
    const providers = await Promise.all([0, 1].map(() => createEmbedded({ network: 'isolated' })));
    for (const provider of providers) closers.push(() => provider.close());
    const words = providers.map((provider, index) => exchange(provider, port, `host ${index}`));
    expect(await Promise.all(words)).toEqual(['host 0', 'host 1']);
  });

  it('reach others by default', async () => {
    const [one, other] = [await createEmbedded(), await createEmbedded()];
    closers.push(
      () => one.close(),
      () => other.close(),
    );
    await using listener = await listen(one, { host: HOST, port: 0 });
    const { port } = listener.address;
    const [server] = await Promise.all([
      listener.accept({ messages: true }),
      connect(other, { host: HOST, port, messages: true }),
    ]);
    await server.close();
  });
});
