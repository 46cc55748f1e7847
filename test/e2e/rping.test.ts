import { createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { CommandFolder, type Finished, type RunningCommand } from '../support/cli-process.ts';
import { MadForger } from '../support/forged-mads.ts';
import { freePort } from '../support/free-port.ts';
import { ownAddress } from '../support/own-address.ts';

const SERVER_ADDRESS = '127.0.0.3';

const folder = new CommandFolder();
let port: string;

/** How each side reaches an RNIC: through a daemon of the test, or in its own process. */
interface Ways {
  readonly server: readonly string[];
  readonly client: readonly string[];
}

const WAYS: Readonly<Record<string, () => Promise<Ways>>> = {
  'two daemons': async () => {
    const [one, two] = [folder.file('1/s'), folder.file('2/s')];
    await folder.daemon(one, ['--device', 'a=127.0.0.2']);
    await folder.daemon(two, ['--device', `b=${SERVER_ADDRESS}`]);
    return { server: ['--socket', two], client: ['--socket', one] };
  },
  'one daemon': async () => {
    const socket = folder.file('d/s');
    await folder.daemon(socket);
    return { server: ['--socket', socket], client: ['--socket', socket] };
  },
  embedded: async () => ({ server: ['--embedded'], client: ['--embedded'] }),
  'a daemon and an embedded client': async () => {
    const socket = folder.file('d/s');
    await folder.daemon(socket);
    return { server: ['--socket', socket], client: ['--embedded'] };
  },
};

/** The text of ping `ping` at the default size, as rdma-core's rping prints it. */
function expectedText(ping: number, sizeBytes = 64): string {
  const head = `rdma-ping-${ping}: `;
  const letters = Array.from({ length: sizeBytes - 1 - head.length }, (_, index) =>
    String.fromCharCode(65 + ((ping + index) % 58)),
  );
  return head + letters.join('');
}

async function startServer(ways: Ways, words: readonly string[] = []): Promise<RunningCommand> {
  const server = folder.start([
    ...['rping', '-s', '-d', '-a', SERVER_ADDRESS, '-p', port],
    ...words,
    ...ways.server,
  ]);
  await server.until(/listening/, 'stderr');
  return server;
}

function startClient(ways: Ways, words: readonly string[]): RunningCommand {
  return folder.start(['rping', '-c', '-a', SERVER_ADDRESS, '-p', port, ...words, ...ways.client]);
}

beforeEach(async () => {
  port = String(await freePort(SERVER_ADDRESS));
});

afterEach(() => folder.clean());

describe.each(Object.keys(WAYS))('rping over %s', (name) => {
  let ways: Ways;

  beforeEach(async () => {
    ways = (await WAYS[name]?.()) ?? { server: [], client: [] };
  });

  it('pings, prints and validates, and both ends exit with 0', async () => {
    const server = await startServer(ways, ['-v']);
    const client = await startClient(ways, ['-C', '3', '-v', '-V']).end();
    expect(client).toMatchObject({
      status: 0,
      stdout: [0, 1, 2].map((ping) => `ping data: ${expectedText(ping)}\n`).join(''),
      stderr: 'client DISCONNECT EVENT...\n',
    });
    const finished = await server.end();
    expect(finished.status).toBe(0);
    expect(finished.stdout).toBe(
      [0, 1, 2].map((ping) => `server ping data: ${expectedText(ping)}\n`).join(''),
    );
    expect(finished.stderr).toContain('server DISCONNECT EVENT...\n');
  });

  it.each([23, 64, 1000, 4096, 65535, 65536])('of %i bytes', async (size) => {
    const server = await startServer(ways);
    const client = await startClient(ways, ['-C', '5', '-V', '-v', '-S', String(size)]).end();
    expect(client.status).toBe(0);
    expect(client.stdout.split('\n')[4]).toBe(`ping data: ${expectedText(4, size)}`);
    expect((await server.end()).status).toBe(0);
  });
});

describe('rping over two daemons', () => {
  let ways: Ways;

  beforeEach(async () => {
    ways = (await WAYS['two daemons']?.()) ?? { server: [], client: [] };
  });

  it('pings a thousand times', async () => {
    const server = await startServer(ways);
    const client = await startClient(ways, ['-C', '1000', '-V', '-v']).end();
    expect(client.status).toBe(0);
    expect(client.stdout.trim().split('\n')).toHaveLength(1000);
    expect((await server.end()).status).toBe(0);
  });

  it('serves clients one after the other and at once with -P, until Ctrl-C', async () => {
    const server = await startServer(ways, ['-P', '-v']);
    const first = await startClient(ways, ['-C', '2']).end();
    const both = [startClient(ways, ['-C', '50', '-V']), startClient(ways, ['-C', '50', '-V'])];
    const ends: Finished[] = [first, ...(await Promise.all(both.map((each) => each.end())))];
    expect(ends.map((each) => each.status)).toEqual([0, 0, 0]);
    server.signal('SIGINT');
    const finished = await server.end();
    expect(finished.status).toBe(130);
    expect(finished.stdout.trim().split('\n')).toHaveLength(102);
  });

  it('continues to serve with -P after a client is killed midway', async () => {
    const server = await startServer(ways, ['-P']);
    const endless = startClient(ways, ['-v']);
    await endless.until(/rdma-ping-3/);
    await endless.kill();
    expect(await startClient(ways, ['-C', '3', '-V']).end()).toMatchObject({ status: 0 });
    server.signal('SIGINT');
    await server.end();
  });

  it('pings until Ctrl-C without -C', async () => {
    const server = await startServer(ways);
    const client = startClient(ways, ['-v']);
    await client.until(/rdma-ping-20/);
    client.signal('SIGINT');
    expect(await client.end()).toMatchObject({ status: 130 });
    await server.end();
  });

  it.each([
    ['-q'],
    ['-I', '127.0.0.2'],
    ['--mpa-revision', '1'],
    ['--markers'],
    ['--peer-to-peer'],
    ['--no-crc'],
    ['--fpdu-size', 'large'],
    ['--fpdu-size', '128'],
  ])('accepts the option %s %s', async (...words) => {
    const server = await startServer(ways, words[0] === '-q' ? ['-q'] : []);
    const client = await startClient(ways, ['-C', '3', '-V', '-S', '5000', ...words]).end();
    expect(client).toMatchObject({ status: 0, stdout: '' });
    expect((await server.end()).status).toBe(0);
  });

  it('prints each step with -d', async () => {
    const server = await startServer(ways);
    const client = await startClient(ways, ['-C', '1', '-d']).end();
    expect(client.stderr).toMatch(/send: addr [0-9a-f]+ rkey [0-9a-f]+ len 64/);
    expect((await server.end()).stderr).toMatch(/read completed[\s\S]*write completed/);
  });

  it('refuses a client whose pings are larger than the -S of the server', async () => {
    const server = await startServer(ways, ['-S', '64']);
    const client = await startClient(ways, ['-C', '1', '-S', '65']).end();
    expect(client.status).toBe(1);
    expect(client.stderr).toMatch(/^iwarpd: the server disconnected during ping 0.*$/m);
    const finished = await server.end();
    expect(finished.status).toBe(1);
    expect(finished.stderr).toMatch(/offers 65 bytes, more than the 64/);
  });

  it('reports that the server must be started first', async () => {
    const client = await startClient(ways, ['-C', '1']).end();
    expect(client.status).toBe(1);
    expect(client.stderr).toMatch(
      /^iwarpd: cannot connect to 127\.0\.0\.3 port [0-9]+: [^\n]*rping -s[^\n]*\n$/,
    );
  });

  it('reports that another server uses the port', async () => {
    await startServer(ways, ['-P']);
    const second = folder.start(['rping', '-s', '-a', SERVER_ADDRESS, '-p', port, ...ways.server]);
    const finished = await second.end();
    expect(finished.status).toBe(1);
    expect(finished.stderr).toMatch(/^iwarpd: cannot listen on [^\n]*another port[^\n]*\n$/);
  });

  it('reports that no device has the address', async () => {
    const words = ['rping', '-s', '-a', '127.0.0.77', '-p', port, ...ways.server];
    const finished = await folder.start(words).end();
    expect(finished.status).toBe(1);
    expect(finished.stderr).toMatch(/^iwarpd: cannot listen on [^\n]*iwarpd devices[^\n]*\n$/);
  });

  it('fails with one line when the peer speaks no MPA', async () => {
    const echo = createServer((socket) => {
      socket.on('error', () => {});
      socket.write('220 no MPA here, and enough bytes to be a whole frame\r\n');
    });
    await new Promise<void>((resolve) => echo.listen(Number(port), SERVER_ADDRESS, resolve));
    onTestFinished(() => void echo.close());
    const client = await startClient(ways, ['-C', '1']).end();
    expect(client.status).toBe(1);
    expect(client.stderr).toMatch(/^iwarpd: cannot connect to [^\n]*\n$/);
  });

  it('fails with one line when its daemon is killed', async () => {
    const socket = folder.file('3/s');
    const daemon = await folder.daemon(socket, ['--device', 'c=127.0.0.4']);
    const server = await startServer(ways, ['-P']);
    const client = startClient({ ...ways, client: ['--socket', socket] }, ['-v']);
    await client.until(/rdma-ping-3/);
    await daemon.kill();
    const finished = await client.end();
    expect(finished.status).toBe(1);
    expect(finished.stderr).toMatch(/^iwarpd: [^\n]*\n$/m);
    server.signal('SIGINT');
    await server.end();
  });
});

it('rping serves the first client that connects over RoCE, not the first that asks', async () => {
  const [server, client] = [folder.file('1/s'), folder.file('2/s')];
  const [address, source, forged] = [ownAddress(27), ownAddress(28), ownAddress(29)];
  await folder.daemon(server, ['--device', `roce0=roce:${address}`]);
  await folder.daemon(client, ['--device', `roce0=roce:${source}`]);
  const ends = ['-a', address, '-p', port, '-C', '2', '-v'];
  const serving = folder.start(['rping', '-s', '-d', ...ends, '--socket', server]);
  await serving.until(/listening/, 'stderr');
  using forger = new MadForger(forged);
  forger.request(address, Number(port), 17);
  const pinging = folder.start(['rping', '-c', ...ends, '--socket', client]);
  expect(await pinging.end()).toMatchObject({ status: 0 });
  expect(await serving.end()).toMatchObject({ status: 0 });
});
