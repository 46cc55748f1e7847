import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { repositoryRoot } from '../support/prerequisites.ts';

const ONE_LINE = /^iwarpd: [^\n]+\n$/;

/** A client whose name has control characters that change a terminal's colour and ring its bell. */
const HOSTILE_CLIENT = `
  process.title = '\u001b[31mx\u0007';
  const { connectDaemon } = await import('./dist/verbs-api/connect-daemon.js');
  const provider = await connectDaemon({ socketPath: process.argv[1] });
  console.log('there');
  setInterval(() => provider, 1_000_000);`;

const folder = new CommandFolder();
let socket: string;

beforeEach(() => {
  socket = folder.file('d/iwarpd.sock');
});

afterEach(() => folder.clean());

describe('without a daemon', () => {
  it.each([
    ['status'],
    ['status', '--json'],
    ['devices'],
    ['rping', '-s', '-a', '127.0.0.1'],
    ['rping', '-c', '-a', '127.0.0.1', '-C', '1'],
  ])('%s %s names the socket and says how to start one', async (...words) => {
    const finished = await runCommand([...words, '--socket', socket]);
    expect(finished.stderr).toMatch(ONE_LINE);
    expect(finished.stderr).toContain(socket);
    expect(finished.stderr).toContain('iwarpd start');
    expect(finished).toMatchObject({ stdout: '', status: 1 });
  });

  it('doctor succeeds and reports that no daemon runs', async () => {
    const finished = await runCommand(['doctor', '--socket', socket]);
    expect(finished.status).toBe(0);
    expect(finished.stdout).toMatch(/^info +daemon +not running at /m);
    expect(finished.stdout).toMatch(/^ok +node /m);
  });

  it('takes the socket from the environment', async () => {
    const finished = await runCommand(['status'], { IWARPD_SOCKET: socket });
    expect(finished.stderr).toContain(socket);
  });
});

describe('start', () => {
  it('prints one line when it is ready and exits on Ctrl-C', async () => {
    const daemon = folder.start(['start', '--socket', socket, '--device', 'one=127.0.0.2']);
    await daemon.until(/\n/);
    expect(daemon.stdout).toMatch(/^iwarpd is ready: one \(127\.0\.0\.2\); try, [^\n]*\n$/);
    expect(statSync(folder.file('d')).mode & 0o777).toBe(0o700);
    daemon.signal('SIGINT');
    const finished = await daemon.end();
    expect(finished).toMatchObject({ status: 0, signal: undefined });
    expect(finished.stdout.split('\n')).toHaveLength(2);
    expect(existsSync(socket)).toBe(false);
  });

  it('prints the next step, which works', async () => {
    const daemon = await folder.daemon(socket);
    const proposed = [...daemon.stdout.matchAll(/`[^`]* (rping [^`]+)`/g)].map(([, line]) => line);
    const [serve = '', ping = ''] = proposed;
    const port = String(await freePort());
    const server = folder.start([...serve.split(' '), '-d', '-p', port]);
    await server.until(/listening/, 'stderr');
    const client = await runCommand([...ping.split(' '), '-p', port]);
    expect(client).toMatchObject({ status: 0, stdout: expect.stringMatching(/^ping data: rdma/) });
    expect(await server.end()).toMatchObject({ status: 0 });
  });

  it('ends at SIGTERM too', async () => {
    const daemon = await folder.daemon(socket);
    daemon.signal('SIGTERM');
    expect(await daemon.end()).toMatchObject({ status: 0 });
  });

  it('logs JSON lines to standard error, at the requested level', async () => {
    const daemon = folder.start(['start', '--socket', socket, '--log-level', 'info']);
    await daemon.until(/ready/);
    daemon.signal('SIGINT');
    const { stderr } = await daemon.end();
    const lines = stderr.trim().split('\n');
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) expect(JSON.parse(line)).toMatchObject({ level: expect.anything() });
  });

  it('logs text on a terminal, and on request', async () => {
    const text = /^\d\d:\d\d:\d\d\.\d{3} info {2}stopped$/m;
    const words = ['start', '--socket', socket, '--no-native'];
    const asked = folder.start([...words, '--log-format', 'text']);
    await asked.until(/ready/);
    asked.signal('SIGINT');
    expect((await asked.end()).stderr).toMatch(text);
    const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
    // script(1) creates a terminal; its output ends when the daemon exits.
    const terminal = spawn(
      'script',
      ['-qefc', [process.execPath, main, ...words].join(' '), '/dev/null'],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let shown = '';
    for await (const bytes of terminal.stdout) {
      shown += String(bytes).replaceAll('\r', '');
      const [, pid] = /\binfo {2}ready {2}.*\bpid=(\d+)/.exec(shown) ?? [];
      if (pid !== undefined && !shown.includes('stopping')) process.kill(Number(pid), 'SIGINT');
    }
    expect(shown).toMatch(text);
  });

  it('refuses another daemon’s socket and leaves that daemon running', async () => {
    await folder.daemon(socket);
    const second = await runCommand(['start', '--socket', socket]);
    expect(second.stderr).toMatch(ONE_LINE);
    expect(second.stderr).toContain(socket);
    expect(second.stderr).toMatch(/already|another/);
    expect(second.status).toBe(1);
    expect(await runCommand(['status', '--socket', socket])).toMatchObject({ status: 0 });
  });

  it('takes the stale socket of a daemon that was killed', async () => {
    const first = await folder.daemon(socket);
    first.signal('SIGKILL');
    await first.end();
    expect(existsSync(socket)).toBe(true);
    const between = await runCommand(['status', '--socket', socket]);
    expect(between.status).toBe(1);
    expect(between.stderr).toMatch(ONE_LINE);
    await folder.daemon(socket);
    expect(await runCommand(['status', '--socket', socket])).toMatchObject({ status: 0 });
  });

  it('does not mistake a file for a stale socket', async () => {
    const file = folder.file('precious');
    writeFileSync(file, 'kept');
    const finished = await runCommand(['start', '--socket', file]);
    expect(finished.stderr).toMatch(ONE_LINE);
    expect(finished.status).toBe(1);
    expect(statSync(file).size).toBe(4);
  });

  it('leaves the socket of another program alone', async () => {
    const path = folder.file('other.sock');
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(path, resolve));
    try {
      const finished = await runCommand(['start', '--socket', path]);
      expect(finished.stderr).toMatch(ONE_LINE);
      expect(finished.status).toBe(1);
      expect(existsSync(path)).toBe(true);
    } finally {
      server.close();
    }
  });

  it('warns when CRCs are off', async () => {
    const daemon = await folder.daemon(socket, ['--no-crc']);
    await daemon.until(/RFC 5044 §4\.4/, 'stderr');
  });

  it('reads its settings from a file; the command line overrides them', async () => {
    const config = folder.file('iwarpd.json');
    writeFileSync(
      config,
      JSON.stringify({
        devices: [
          { name: 'filed', addresses: ['127.0.0.2'] },
          { name: 'roce', addresses: ['127.0.0.2'], transport: 'roce' },
        ],
        logLevel: 'warn',
      }),
    );
    const daemon = folder.start(['start', '--config', config, '--socket', socket]);
    await daemon.until(/ready: [^\n]*filed/);
    const devices = await runCommand(['devices', '--json', '--socket', socket]);
    expect(JSON.parse(devices.stdout)).toMatchObject({
      format: 1,
      devices: [
        { name: 'filed', addresses: ['127.0.0.2'] },
        { name: 'roce', addresses: ['127.0.0.2'] },
      ],
    });
    const types = ['filed', 'roce'].map((name) =>
      readFileSync(`${socket}.sysfs/class/infiniband/${name}/node_type`, 'utf8'),
    );
    expect(types).toEqual(['4: RNIC\n', '1: CA\n']);
  });

  it('injects the faults of the file from the start', async () => {
    const config = folder.file('iwarpd.json');
    const faults = [
      { kind: 'drop', device: 'roce0', every: 100 },
      { kind: 'port-down', device: 'iwarp0' },
    ];
    writeFileSync(config, JSON.stringify({ faults, logLevel: 'warn' }));
    await folder.start(['start', '--config', config, '--socket', socket]).until(/ready: /);
    const listed = await runCommand(['fault', 'list', '--json', '--socket', socket]);
    expect(JSON.parse(listed.stdout)).toMatchObject({
      faults: faults.map((spec, index) => ({ id: index + 1, spec })),
    });
    const { devices } = JSON.parse(
      (await runCommand(['status', '--json', '--socket', socket])).stdout,
    );
    expect(devices).toMatchObject([{ portState: 'active' }, { portState: 'down' }]);
  });

  it.each([
    ['{', /JSON/],
    ['[]', /iwarpd\.json/],
    ['{"devcies": []}', /devcies/],
    ['{"devices": [{"name": "a", "addresses": ["nowhere"]}]}', /devices.*addresses|nowhere/],
    ['{"logLevel": "loud"}', /logLevel/],
    ['{"devices": [{"name": "a", "wire": {"mpaRevision": 3}}]}', /mpaRevision/],
    ['{"devices": [{"name": "a", "transport": "foo"}]}', /transport.*iwarp.*roce/],
    [
      '{"devices": [{"name": "a", "transport": "roce", "wire": {"mpaRevision": 1}}]}',
      /device a: RoCE has no such wire options/,
    ],
    [
      '{"faults": [{"kind": "drop"},\n{"kind": "dorp"}]}',
      /json:2:\d+: option faults\.1\.kind: must be/,
    ],
    [
      '{"faults":\n[{"kind": "slice"\n}]}',
      /json:2:\d+: option faults\.0\.bytes: required by slice/,
    ],
    [
      '{"logLevel": "warn",\n"faults": [{"kind": "drop",\n"device": "x"}]}',
      /json:3:\d+: .*faults\.0\.device: no device x/,
    ],
    [
      '{"logLevel": "warn",\n"faults": [{"kind": "drop",\n"peer": "x"}]}',
      /json:3:\d+: option faults\.0\.peer: 'x' is not/,
    ],
    [
      '{"logLevel": "warn","faults": [{"kind": "slice", "bytes": 1, "device": "roce0"}]}',
      /json:1:\d+: .*faults\.0\.kind/,
    ],
    ['{"faults": {}}', /json:1:\d+: option faults: must be a list/],
  ])('names the fault of the file %s', async (text, named) => {
    const config = folder.file('iwarpd.json');
    writeFileSync(config, text);
    const finished = await runCommand(['start', '--config', config, '--socket', socket]);
    expect(finished.stderr).toMatch(ONE_LINE);
    expect(finished.stderr).toMatch(named);
    expect(finished.stderr).toContain(config);
    expect(finished.status).toBe(1);
  });
});

describe('status and devices', () => {
  it('list the daemon’s objects, as text and as JSON', async () => {
    const daemon = await folder.daemon(socket, ['--device', 'a=127.0.0.2', '--device', 'b=::1']);
    const status = JSON.parse((await runCommand(['status', '--json', '--socket', socket])).stdout);
    expect(Object.keys(status)).toEqual([
      'format',
      'version',
      'pid',
      'uptimeSeconds',
      'ready',
      'socketPath',
      'crcEngine',
      'network',
      'loopback',
      'memoryTiers',
      'devices',
      'clients',
      'faults',
      'refusals',
      'health',
    ]);
    expect(status).toMatchObject({
      format: 2,
      pid: daemon.pid,
      socketPath: socket,
      clients: [],
      refusals: 0,
    });
    expect(status.devices.map((each: { device: { name: string } }) => each.device.name)).toEqual([
      'a',
      'b',
    ]);
    const text = await runCommand(['status', '--socket', socket]);
    expect(text.stdout).toContain(`pid ${daemon.pid}`);
    expect(text.stdout).toContain('device a (emulated): 127.0.0.2');
    expect(text.stdout).toContain('no clients');

    const devices = await runCommand(['devices', '--socket', socket]);
    expect(devices.stdout.split('\n')[0]).toMatch(/^device +backend +node GUID +addresses$/);
    expect(devices.stdout).toMatch(/^b +emulated +[0-9a-f]{16} +::1$/m);
    const json = JSON.parse((await runCommand(['devices', '--json', '--socket', socket])).stdout);
    expect(json).toMatchObject({
      format: 1,
      devices: [
        { name: 'a', backend: 'emulated', addresses: ['127.0.0.2'] },
        { name: 'b', backend: 'emulated', addresses: ['::1'] },
      ],
    });
  });

  it('show a client while it is connected', async () => {
    await folder.daemon(socket, ['--device', 'a=127.0.0.2']);
    const place = ['-a', '127.0.0.2', '-p', '0'];
    const server = folder.start(['rping', '-s', '-d', ...place, '--socket', socket]);
    await server.until(/listening/, 'stderr');
    const { stdout } = await runCommand(['status', '--socket', socket]);
    expect(stdout).toMatch(new RegExp(`^${server.pid} node +[0-9]+ s +.*1 id`, 'm'));
    server.signal('SIGINT');
    expect(await server.end()).toMatchObject({ status: 130 });
    expect((await runCommand(['status', '--socket', socket])).stdout).toContain('no clients');
  });

  it('show no control characters from the name of a program', async () => {
    await folder.daemon(socket);
    const client = spawn(process.execPath, ['--input-type=module', '-e', HOSTILE_CLIENT, socket], {
      stdio: ['ignore', 'pipe', 'inherit'],
      cwd: join(import.meta.dirname, '../..'),
    });
    try {
      await once(client.stdout, 'data');
      for (const words of [['status'], ['top', '--count', '1', '--interval', '1']]) {
        const { stdout } = await runCommand([...words, '--socket', socket]);
        expect(stdout).toContain('?[31mx?');
        expect(stdout).not.toMatch(/(?!\n)\p{Cc}/u);
      }
      const { stdout } = await runCommand(['status', '--json', '--socket', socket]);
      expect(JSON.parse(stdout).clients[0].program).toBe('\u001b[31mx\u0007');
    } finally {
      client.kill('SIGKILL');
    }
  });

  it('exit silently when their reader closes the pipe', async () => {
    await folder.daemon(socket);
    const status = folder.start(['status', '--socket', socket]);
    status.closeStdout();
    expect(await status.end()).toMatchObject({ status: 0, stderr: '' });
  });
});

describe('an unknown name', () => {
  it('as the address of a device fails the start', async () => {
    const words = ['--device', 'a=127.0.0.2', '--device', 'b=203.0.113.7'];
    const finished = await runCommand(['start', '--socket', socket, ...words]);
    expect(finished).toMatchObject({ status: 1, stdout: '' });
    expect(finished.stderr).toMatch(
      /^iwarpd: device b: 203\.0\.113\.7 is not an address of this host; [^\n]+\n$/,
    );
  });

  it.each([
    ['trace', '--device', 'nodev'],
    ['capture', '-w', '-', '--device', 'nodev'],
    ['explain', '--device', 'nodev'],
  ])('as device of %s fails at once', async (...words) => {
    await folder.daemon(socket, ['--device', 'a=127.0.0.2']);
    const finished = await runCommand([...words, '--socket', socket]);
    expect(finished.status).toBe(1);
    expect(finished.stderr).toContain('iwarpd: no device nodev; the daemon has a; see');
  });

  it.each([
    ['trace', '--device', 'letf'],
    ['explain', '--device', 'Left'],
    ['fault', 'add', 'drop', '--device', 'lefft'],
  ])('as device of %s names a similar one', async (...words) => {
    await folder.daemon(socket, ['--device', 'left=127.0.0.2', '--device', 'right=127.0.0.3']);
    const finished = await runCommand([...words, '--socket', socket]);
    expect(finished.status).toBe(1);
    expect(finished.stderr).toMatch(/no device \w+ \(Did you mean left\?\); .*left.*right/);
  });

  it.each(['status', 'devices', 'reset', 'top'])('as instance of %s', async (command) => {
    const environment = { XDG_RUNTIME_DIR: folder.path };
    const finished = await runCommand([command, '--instance', 'typo'], environment);
    expect(finished.status).toBe(1);
    expect(finished.stderr).toContain('start it with `npx iwarpd start --instance typo`');
  });
});

describe('doctor', () => {
  it('finds the daemon, and prints JSON of one shape', async () => {
    const daemon = await folder.daemon(socket);
    const finished = await runCommand(['doctor', '--json', '--socket', socket]);
    expect(finished.status).toBe(0);
    const report = JSON.parse(finished.stdout);
    expect(report).toMatchObject({ format: 2, healthy: true });
    expect(report.checks.map((check: { name: string }) => check.name)).toEqual([
      'node',
      'crc32c',
      'koffi',
      'shared memory',
      'process_vm',
      'agent',
      'socket',
      'trust',
      'daemon',
      'open files',
      'roce udp',
      'sctp',
      'preload',
      'rdma-core',
      'siw provider',
      'rxe provider',
      'kernel modules',
      'real devices',
      'native bridge',
      'device nodes',
      'rdma link',
      'memlock',
    ]);
    expect(report.checks[8].text).toContain(`pid ${daemon.pid}`);
  });

  it('fails and names the broken part', async () => {
    const finished = await runCommand(['doctor', '--socket', folder.file(`${'x'.repeat(120)}/s`)]);
    expect(finished.status).toBe(1);
    expect(finished.stdout).toMatch(/^broken +socket .*too long/m);
    expect(finished.stderr).toMatch(/^iwarpd: broken: .*socket/);
    expect(finished.stderr).toMatch(ONE_LINE);
  });
});
