/** `iwarpd nfs`: a server and its clients as processes, and what hostile TCP clients get. */
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { patience } from '../support/patience.ts';

const folder = new CommandFolder();
let directory: string;
let ports: string[];

/** Root is allowed, since tests may run as root. */
async function serve(
  words: readonly string[] = ['--embedded', '--writable'],
): Promise<RunningCommand> {
  const place = ['--no-root-squash', ...ports];
  const server = folder.start(['nfs', 'serve', directory, ...place, ...words]);
  await server.until(/^ready: |^}$/m);
  return server;
}

/** Whether TCP connects. */
async function reaches(host: string, port: string): Promise<boolean> {
  const socket = connect(Number(port), host);
  try {
    return await new Promise<boolean>((resolve) => {
      socket.on('connect', () => resolve(true));
      socket.on('error', () => resolve(false));
    });
  } finally {
    socket.destroy();
  }
}

async function nfs(words: readonly string[]) {
  return await folder.start(['nfs', ...words, '--embedded', ...ports]).end();
}

beforeEach(async () => {
  directory = folder.file('export');
  mkdirSync(directory);
  ports = ['--port', String(await freePort()), '--mount-port', String(await freePort())];
});

afterEach(() => folder.clean());

describe('iwarpd nfs', () => {
  it('serves a directory on any port to ls, cat and put until it is stopped [NFSR-5667.6-01]', async () => {
    mkdirSync(`${directory}/sub`);
    writeFileSync(`${directory}/file`, 'bytes of the file');
    writeFileSync(`${directory}/.hidden`, '');
    symlinkSync('file', `${directory}/link`);
    const server = await serve();
    expect((await nfs(['ls', '127.0.0.1:/'])).stdout).toBe('file\nlink\nsub\n');
    expect((await nfs(['ls', '-a', '127.0.0.1:/'])).stdout).toBe('.hidden\nfile\nlink\nsub\n');
    expect((await nfs(['ls', '-l', `127.0.0.1:${directory}/file`])).stdout).toMatch(
      /^-rw-r--r-- +1 +\d+ +\d+ +17 +\S+Z +\/\S+file\n$/,
    );
    const json = JSON.parse((await nfs(['ls', '--json', '127.0.0.1:/'])).stdout);
    expect(json).toMatchObject({
      format: 1,
      entries: [
        { name: 'file', type: 'file', size: 17 },
        { name: 'link', type: 'link' },
        { name: 'sub', type: 'directory' },
      ],
    });
    const both = await nfs(['cat', '127.0.0.1:/file', '127.0.0.1:/file']);
    expect(both).toMatchObject({ status: 0, stdout: 'bytes of the filebytes of the file' });
    writeFileSync(folder.file('local'), Buffer.alloc(3_000_000, 'abcdefg'));
    const put = await nfs(['put', folder.file('local'), '127.0.0.1:/sub', '--json']);
    expect(JSON.parse(put.stdout)).toMatchObject({ path: '/sub/local', bytes: 3_000_000 });
    const there = readFileSync(`${directory}/sub/local`);
    expect(there.equals(readFileSync(folder.file('local')))).toBe(true);
    // A shorter one replaces the longer one.
    writeFileSync(folder.file('local'), 'short');
    expect((await nfs(['put', folder.file('local'), '127.0.0.1:/sub/local'])).status).toBe(0);
    expect(readFileSync(`${directory}/sub/local`, 'utf8')).toBe('short');
    server.signal('SIGINT');
    expect(await server.end()).toMatchObject({ status: 0 });
  });

  it('leaves the old file as it was, and nothing else, when a copy is interrupted', async () => {
    await serve();
    writeFileSync(`${directory}/kept`, 'old', { mode: 0o640 });
    const put = folder.start(
      ['nfs', 'put', '-', '127.0.0.1:/kept', '--embedded', ...ports],
      {},
      'pipe',
    );
    put.type(Buffer.alloc(3_000_000));
    await expect.poll(() => readdirSync(directory).length).toBe(2);
    put.signal('SIGINT');
    expect((await put.end()).status).toBe(130);
    expect(readdirSync(directory)).toEqual(['kept']);
    expect(readFileSync(`${directory}/kept`, 'utf8')).toBe('old');
    // The replacement has its mode.
    writeFileSync(folder.file('local'), 'new');
    expect((await nfs(['put', folder.file('local'), '127.0.0.1:/kept'])).status).toBe(0);
    expect(readFileSync(`${directory}/kept`, 'utf8')).toBe('new');
    expect(statSync(`${directory}/kept`).mode & 0o777).toBe(0o640);
    expect(readdirSync(directory)).toEqual(['kept']);
  });

  it('blames the side that is wrong when a directory is put', async () => {
    await serve();
    const put = await nfs(['put', directory, '127.0.0.1:/x']);
    expect(put.stderr).toBe(`iwarpd: cannot read ${directory}: is a directory; name a file\n`);
    expect(put.status).toBe(1);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('runs over a daemon if there is one', async () => {
    const socket = folder.file('d/s');
    const daemon = await folder.daemon(socket);
    writeFileSync(`${directory}/file`, Buffer.alloc(2_500_000, 'x'));
    const server = await serve(['--socket', socket, '--json']);
    expect(JSON.parse(server.stdout)).toMatchObject({ directory, provider: 'daemon' });
    const words = ['nfs', 'cat', '127.0.0.1:/file', '--socket', socket, ...ports];
    const cat = await folder.start(words).end();
    expect(cat.status, cat.stderr).toBe(0);
    expect(cat.stdout).toHaveLength(2_500_000);
    server.signal('SIGTERM');
    expect((await server.end()).status).toBe(0);
    daemon.signal('SIGTERM');
    expect((await daemon.end()).status).toBe(0);
  });

  it('refuses changes unless they are allowed', async () => {
    writeFileSync(`${directory}/file`, 'kept');
    await serve(['--embedded']);
    const put = await nfs(['put', `${directory}/file`, '127.0.0.1:/other']);
    expect(put).toMatchObject({ status: 1, stdout: '' });
    expect(put.stderr).toBe('iwarpd: 127.0.0.1:/other: the server is read-only (NFS3ERR_ROFS)\n');
    expect((await nfs(['cat', '127.0.0.1:/file'])).stdout).toBe('kept');
  });

  it('reports an error in one line and exits with 1, or with 2 for a usage error', async () => {
    symlinkSync('/etc', `${directory}/out`);
    await serve();
    const wrong: [string[], number, RegExp][] = [
      [['cat', '127.0.0.1:/none'], 1, /no such file or directory \(NFS3ERR_NOENT\)/],
      [['cat', '127.0.0.1:/'], 1, /is a directory \(NFS3ERR_ISDIR\)/],
      [['cat', '127.0.0.1:/out/passwd'], 1, /symbolic link, which is not followed/],
      // The parent of the root is the root.
      [['ls', '127.0.0.1:/../etc'], 1, /no such file or directory/],
      [['ls', 'no-path'], 2, /is not HOST:PATH/],
      [['ls', 'host:relative'], 2, /starts with a slash/],
      [['put', folder.file('none'), '127.0.0.1:/x'], 1, /cannot read .*ENOENT/],
      [['frob'], 2, /unknown command|too many arguments/],
    ];
    for (const [words, status, text] of wrong) {
      const ended =
        words[0] === 'frob' ? await folder.start(['nfs', 'frob']).end() : await nfs(words);
      expect(ended.status, `${words}: ${ended.stderr}`).toBe(status);
      expect(ended.stderr).toMatch(text);
      expect(ended.stderr.split('\n').length).toBeLessThanOrEqual(2);
    }
  });

  it('listens only on loopback by default', async () => {
    // Addresses of this machine other than 127.0.0.1, which a wildcard listener would serve.
    const others = [
      '127.0.0.2',
      ...Object.values(networkInterfaces())
        .flatMap((each) => each ?? [])
        .filter(({ internal, family }) => !internal && family === 'IPv4')
        .map(({ address }) => address),
    ];
    await serve();
    const [, port = '', , mountPort = ''] = ports;
    expect(await reaches('127.0.0.1', port)).toBe(true);
    expect(await reaches('127.0.0.1', mountPort)).toBe(true);
    for (const address of others) {
      expect([address, await reaches(address, port)]).toEqual([address, false]);
      expect([address, await reaches(address, mountPort)]).toEqual([address, false]);
    }
  });

  it('names the address without a listener and the directory that cannot be served', async () => {
    const unserved = await nfs(['ls', '127.0.0.1:/']);
    expect(unserved.status).toBe(1);
    expect(unserved.stderr).toMatch(/no NFS over RDMA server at 127\.0\.0\.1 port \d+ \(--port\)/);
    writeFileSync(folder.file('plain'), '');
    const plain = ['nfs', 'serve', folder.file('plain'), '--embedded', ...ports];
    expect(await folder.start(plain).end()).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/cannot serve .*ENOTDIR.*; name a directory\n$/),
    });
    await serve();
    const again = ['nfs', 'serve', directory, '--host', '127.0.0.1', '--embedded', ...ports];
    expect(await folder.start(again).end()).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/EADDRINUSE.*choose other ports/),
    });
  });
});

describe('MOUNT over TCP', () => {
  /** The response, until the server closes or `wantedBytes` have arrived. */
  async function send(bytes: Buffer, wantedBytes = Number.POSITIVE_INFINITY): Promise<Buffer> {
    const socket = connect(Number(ports[3]), '127.0.0.1');
    const got: Buffer[] = [];
    socket.on('data', (piece) => {
      got.push(piece);
      if (Buffer.concat(got).length >= wantedBytes) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.write(bytes);
    const timer = setTimeout(() => socket.destroy(), patience());
    await new Promise((resolve) => socket.on('close', resolve));
    clearTimeout(timer);
    return Buffer.concat(got);
  }

  function words(...values: number[]): Buffer {
    const bytes = Buffer.alloc(values.length * 4);
    for (const [at, value] of values.entries()) bytes.writeUInt32BE(value >>> 0, at * 4);
    return bytes;
  }

  it('closes a connection that sends no valid call and serves the next one', async () => {
    await serve();
    const call = words(7, 0, 2, 100005, 3, 0, 0, 0, 0, 0);
    const record = Buffer.concat([words(0x8000_0000 + call.length), call]);
    const answer = words(7, 1, 0, 0, 0, 0);
    const expected = Buffer.concat([words(0x8000_0000 + answer.length), answer]);
    const hostile = [
      words(0xffff_ffff),
      words(0x7fff_ffff, 1),
      words(0x8000_0000),
      words(0x8000_0004, 1),
      Buffer.concat([words(0x8000_0008), words(1, 1)]),
      Buffer.alloc(100_000),
      Buffer.from('GET / HTTP/1.1\r\n\r\n'),
    ];
    for (const bytes of hostile) {
      expect(await send(bytes)).toEqual(Buffer.alloc(0));
      expect(await send(record, expected.length)).toEqual(expected);
    }
    // In two fragments, and two in one piece.
    const cut = Buffer.concat([
      words(16),
      call.subarray(0, 16),
      words(0x8000_0000 + call.length - 16),
      call.subarray(16),
    ]);
    const twice = Buffer.concat([expected, expected]);
    expect(await send(Buffer.concat([cut, record]), twice.length)).toEqual(twice);
    const other = words(7, 0, 2, 100003, 3, 0, 0, 0, 0, 0);
    const unknown = Buffer.concat([words(0x8000_0000 + other.length), other]);
    const refused = await send(unknown, expected.length);
    expect(refused.readUInt32BE(refused.length - 4)).toBe(1);
    expect(statSync(directory).isDirectory()).toBe(true);
  });
});
