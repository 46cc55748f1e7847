/**
 * Two users of one machine: neither gains access to the other's data through sockets in shared
 * directories, foreign daemons, HTTP, links in /tmp, memory, or reused pids.
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { QPState, WCStatus } from '#contract/verbs/enums';
import type { DoctorReport } from '#daemon/cli/doctor/doctor';
import { firstUnprivilegedPort } from '#native-bridge/libc/privileges';
import { until } from '../support/patience.ts';
import { missingPackages } from '../support/prerequisites.ts';
import { missingFor, NATIVE, ShimRig } from '../support/shim-rig.ts';
import {
  ALICE,
  EVE,
  TwoUsers,
  twoUsersObstacle,
  type UserProcess,
  userNamespaceObstacle,
} from './two-users/user-process.ts';

const obstacle = twoUsersObstacle();
const noNamespace = obstacle === '' ? userNamespaceObstacle() : '';
const noCompiler = missingFor(NATIVE);
const noPrograms =
  missingPackages('rdma-programs').length > 0 ? ' (needs the package rdmacm-utils)' : '';

let users: TwoUsers;

beforeEach(() => {
  users = new TwoUsers();
});

afterEach(() => users.clean());

/** Commands that talk to a daemon, without the options that name one. */
const CLIENTS: readonly (readonly string[])[] = [
  ['status'],
  ['devices'],
  ['page'],
  ['wait', '--timeout', '5'],
  ['top', '--count', '1'],
  ['reset'],
  ['fault', 'list'],
  ['trace', '--duration', '1'],
  ['capture', '-w', '/dev/null', '--duration', '1'],
  ['env'],
  ['run', '--', 'true'],
  ['rping', '-c', '-a', '127.0.0.2', '-C', '1'],
  ['nfs', 'ls', '127.0.0.2:/'],
];

const REFUSAL = new RegExp(
  `refusing the daemon at .*: it runs as uid ${EVE}, not as you \\(uid ${ALICE}\\)`,
);

/** `words` with options after the command and before a program. */
function withOptions(words: readonly string[], options: readonly string[]): string[] {
  const at = words.indexOf('--');
  return at < 0 ? [...words, ...options] : [...words.slice(0, at), ...options, ...words.slice(at)];
}

/** Creates a directory of mode 0700 that belongs to a user. */
function directoryOf(uid: number, name: string): string {
  const path = users.path(name);
  mkdirSync(path, { mode: 0o700 });
  chownSync(path, uid, uid);
  return path;
}

/** Eve listens at `path`, which every user can reach. */
async function trapAt(path: string): Promise<UserProcess> {
  const trap = users.program(EVE, ['trap', path]);
  await trap.until(/listening/);
  return trap;
}

/** A daemon that serves all users, as its user configured. */
async function openDaemon(uid: number, words: readonly string[] = []): Promise<string> {
  const config = users.path(`config-${uid}.json`);
  writeFileSync(config, '{"allowOtherUsers":true}');
  const folder = directoryOf(uid, `of-${uid}`);
  chmodSync(folder, 0o755);
  const socket = `${folder}/s`;
  await users.daemon(uid, ['--socket', socket, '--config', config, ...words]);
  return socket;
}

describe.runIf(obstacle === '')(`two users of one machine${obstacle}`, () => {
  describe('the default place of a socket, squatted by another user', () => {
    let trap: UserProcess;

    beforeEach(async () => {
      const place = directoryOf(EVE, `iwarpd-${ALICE}`);
      chmodSync(place, 0o777);
      trap = await trapAt(`${place}/iwarpd.sock`);
    });

    it('makes every command refuse, before it sends a byte', async () => {
      for (const words of CLIENTS) {
        const { status, stderr } = await users.iwarpd(ALICE, words).end();
        expect(status, words.join(' ')).not.toBe(0);
        expect(stderr, words.join(' ')).toMatch(REFUSAL);
      }
      expect(trap.stdout).toContain('a client connected');
      expect(trap.stdout).not.toContain('sent');
    });

    it('makes a TypeScript program refuse, before it sends a byte', async () => {
      const { stdout } = await users.program(ALICE, ['connect', trapPath()]).end();
      expect(stdout).toMatch(REFUSAL);
      await trap.until(/a client connected/);
      expect(trap.stdout).not.toContain('sent');
    });

    it('makes the preload library refuse, before it sends a byte', async () => {
      const shim = users.preload;
      const script = `LD_PRELOAD=${shim} sh -c ': </dev/infiniband/rdma_cm' 2>&1 | cat`;
      const { stdout } = await users.start(ALICE, ['sh', '-c', script]).end();
      expect(stdout).toMatch(REFUSAL);
      await trap.until(/a client connected/);
      expect(trap.stdout).not.toContain('sent');
    });

    it('prevents a daemon from starting there, and doctor explains why', async () => {
      const { status, stderr } = await users.iwarpd(ALICE, ['start', '--no-native']).end();
      expect(status).toBe(1);
      expect(stderr).toMatch(new RegExp(`belongs to user ${EVE}, not to ${ALICE}`));
      const { stdout } = await users.iwarpd(ALICE, ['doctor', '--json']).end();
      const { checks }: DoctorReport = JSON.parse(stdout);
      expect(checks.find(({ name }) => name === 'socket')).toMatchObject({ state: 'broken' });
      const daemon = checks.find(({ name }) => name === 'daemon');
      expect(daemon).toMatchObject({ state: 'broken', text: expect.stringMatching(REFUSAL) });
    });

    function trapPath(): string {
      return users.path(`iwarpd-${ALICE}/iwarpd.sock`);
    }
  });

  describe('a daemon of another user', () => {
    it('is refused by every command that finds it, and used once it is allowed', async () => {
      const socket = await openDaemon(EVE);
      for (const words of [['status'], ['env'], ['run', '--', 'true']]) {
        const named = users.iwarpd(ALICE, withOptions(words, ['--socket', socket]));
        expect((await named.end()).stderr, words.join(' ')).toMatch(REFUSAL);
        const led = users.iwarpd(ALICE, words, { IWARPD_SOCKET: socket });
        expect((await led.end()).stderr, words.join(' ')).toMatch(REFUSAL);
        const options = ['--socket', socket, '--allow-daemon-uid', String(EVE)];
        const allowed = await users.iwarpd(ALICE, withOptions(words, options)).end();
        expect(allowed, words.join(' ')).toMatchObject({ status: 0, stderr: '' });
      }
      const wrong = { IWARPD_SOCKET: socket, IWARPD_ALLOW_DAEMON_UID: String(ALICE) };
      expect((await users.iwarpd(ALICE, ['status'], wrong).end()).stderr).toMatch(REFUSAL);
      const nonsense = { IWARPD_SOCKET: socket, IWARPD_ALLOW_DAEMON_UID: 'eve' };
      const { stderr } = await users.iwarpd(ALICE, ['status'], nonsense).end();
      expect(stderr).toContain("IWARPD_ALLOW_DAEMON_UID: 'eve' is not a uid");
      const right = { IWARPD_SOCKET: socket, IWARPD_ALLOW_DAEMON_UID: String(EVE) };
      expect(await users.iwarpd(ALICE, ['status'], right).end()).toMatchObject({ status: 0 });
      expect((await users.program(ALICE, ['connect', socket], right).end()).stdout).toBe('done\n');
      const { stdout } = await users.iwarpd(ALICE, ['doctor', '--json'], right).end();
      const { checks }: DoctorReport = JSON.parse(stdout);
      expect(checks.find(({ name }) => name === 'trust')).toMatchObject({ state: 'warn' });
    });

    it('is refused by the preload library, and serves a program once it is allowed', async () => {
      const socket = await openDaemon(EVE);
      const shim = users.preload;
      const variables = { IWARPD_SOCKET: socket };
      const open = `LD_PRELOAD=${shim} sh -c ': </dev/infiniband/uverbs0 && echo opened' 2>&1 | cat`;
      const refused = await users.start(ALICE, ['sh', '-c', open], variables).end();
      expect(refused.stdout).toMatch(REFUSAL);
      expect(refused.stdout).not.toContain('opened');
      const right = { ...variables, IWARPD_ALLOW_DAEMON_UID: String(EVE) };
      const allowed = await users.start(ALICE, ['sh', '-c', open], right).end();
      expect(allowed.stdout).toBe('opened\n');
      for (const value of [String(ALICE), `${EVE}x`, `0${EVE}0`, '', '-1', '4294967295']) {
        const wrong = { ...variables, IWARPD_ALLOW_DAEMON_UID: value };
        const { stdout } = await users.start(ALICE, ['sh', '-c', open], wrong).end();
        expect(stdout, value).toMatch(REFUSAL);
      }
    });

    it('that serves only its own user refuses others, whatever daemons they allow', async () => {
      const folder = directoryOf(EVE, 'eve');
      const socket = `${folder}/s`;
      await users.daemon(EVE, ['--socket', socket]);
      const options = ['--socket', socket, '--allow-daemon-uid', String(EVE)];
      const closed = await users.iwarpd(ALICE, ['status', ...options]).end();
      expect(closed.stderr).toMatch(/the socket or its directory belongs to another user/);
      chmodSync(folder, 0o755);
      chmodSync(socket, 0o666);
      const opened = await users.iwarpd(ALICE, ['status', ...options]).end();
      expect(opened.stderr).toContain(`user ${ALICE} may not use the daemon of user ${EVE}`);
    });

    it('of root is trusted, but root trusts no other', async () => {
      const socket = await openDaemon(0);
      const plain = await users.iwarpd(ALICE, ['status', '--socket', socket]).end();
      expect(plain).toMatchObject({ status: 0, stderr: '' });
      const other = await openDaemon(EVE, ['--device', 'b=127.0.0.3']);
      const { stderr } = await users.iwarpd(0, ['status', '--socket', other]).end();
      expect(stderr).toMatch(new RegExp(`it runs as uid ${EVE}, not as you \\(uid 0\\)`));
    });
  });

  describe('a daemon that serves everyone', () => {
    it('shows keys, addresses, traces and captures only to its own user', async () => {
      const socket = await openDaemon(ALICE);
      const trust = { IWARPD_ALLOW_DAEMON_UID: String(ALICE) };
      const holder = users.program(ALICE, ['holder', socket]);
      const [, key, address] = await holder.until(
        /key (\d+) address (0x[0-9a-f]+) tier process_vm/,
      );
      const looked = await users.program(EVE, ['look-around', socket], trust).end();
      const seen = JSON.parse(looked.stdout);
      expect(seen).toMatchObject({ status: 'done', clients: 'done' });
      expect(seen.regions).toHaveLength(2);
      expect(looked.stdout).not.toContain(`"key":`);
      expect(looked.stdout).not.toContain(address);
      expect(looked.stdout).not.toContain(key);
      for (const closed of ['trace', 'tap', 'reset', 'addFault', 'removeFaults']) {
        expect(seen[closed], closed).toMatch(/^EACCES /);
      }
      const own = await users.program(ALICE, ['look-around', socket]).end();
      const { regions, trace, tap } = JSON.parse(own.stdout);
      expect(regions).toContainEqual(expect.objectContaining({ key: Number(key), address }));
      expect({ trace, tap }).toEqual({ trace: 'done', tap: 'done' });
    });

    it.runIf(noNamespace === '')(
      `and whose user namespace is empty still knows its own user${noNamespace}`,
      async () => {
        const config = users.path('config');
        writeFileSync(config, '{"allowOtherUsers":true}');
        const folder = directoryOf(ALICE, 'alice');
        chmodSync(folder, 0o755);
        const socket = `${folder}/s`;
        const words = ['--device', 'a=127.0.0.2', '--log-level', 'error', '--config', config];
        await users.unmappedDaemon(ALICE, ['--socket', socket, ...words]);
        const trust = { IWARPD_ALLOW_DAEMON_UID: String(ALICE) };
        const looked = await users.program(EVE, ['look-around', socket], trust).end();
        const seen = JSON.parse(looked.stdout || '{}');
        expect(seen, looked.stderr).toMatchObject({ status: 'done', clients: 'done' });
        for (const closed of ['trace', 'tap', 'reset', 'addFault', 'removeFaults']) {
          expect(seen[closed], closed).toMatch(/^EACCES /);
        }
        const own = await users.program(ALICE, ['look-around', socket]).end();
        expect(JSON.parse(own.stdout || '{}'), own.stderr).toMatchObject({
          trace: 'done',
          tap: 'done',
          addFault: 'done',
        });
      },
    );

    it("keeps a user's RoCE queue pairs and keys from the other's", async () => {
      const socket = await openDaemon(ALICE, ['--device', 'r=roce:127.0.0.2']);
      const trust = { IWARPD_ALLOW_DAEMON_UID: String(ALICE) };
      const victim = users.program(ALICE, ['roce-victim', socket]);
      const [, ...named] = await victim.until(/pair (\d+) key (\d+) address (\d+)/);
      const thief = await users.program(EVE, ['roce-thief', socket, ...named], trust).end();
      expect(JSON.parse(thief.stdout || '{}'), thief.stderr).toEqual({
        unanswered: WCStatus.retryExcErr,
        refused: [WCStatus.remAccessErr, WCStatus.remAccessErr],
        read: false,
      });
      const { stdout, stderr } = await victim.end();
      expect(stdout.split('\n')[1], stderr).toBe(
        JSON.stringify({ states: [QPState.RTS, QPState.RTS], changed: false }),
      );
    });

    it.runIf(firstUnprivilegedPort() > 0)(
      'and runs as root refuses privileged ports and Q_Keys to other users',
      async () => {
        const socket = await openDaemon(0, ['--device', 'r=roce:127.0.0.3']);
        const port = String(firstUnprivilegedPort() - 1);
        const asked = ['low-ports', socket, port, '127.0.0.2', '127.0.0.3', '0.0.0.0'];
        const outcomesOf = async (uid: number): Promise<Record<string, string>> => {
          const { stdout, stderr } = await users.program(uid, asked).end();
          expect(stdout, stderr).not.toBe('');
          return JSON.parse(stdout);
        };
        for (const [name, said] of Object.entries(await outcomesOf(EVE))) {
          expect(said, name).toMatch(name === 'qkey' ? /^EPERM / : /^EACCES /);
        }
        for (const [name, said] of Object.entries(await outcomesOf(0))) {
          if (!name.endsWith('127.0.0.2 datagrams')) expect(said, name).toBe('done');
        }
      },
    );

    it.runIf(firstUnprivilegedPort() > 0 && noPrograms === '')(
      `and runs as root refuses privileged ports to unmodified programs of other users${noPrograms}`,
      async () => {
        const socket = await openDaemon(0, ['--device', 'r=roce:127.0.0.3']);
        const variables = { IWARPD_SOCKET: socket, LD_PRELOAD: users.preload };
        for (const address of ['127.0.0.2', '127.0.0.3', '0.0.0.0']) {
          const port = String(firstUnprivilegedPort() - 1);
          const words = ['rping', '-s', '-a', address, '-p', port, '-C', '1'];
          const { status, stderr } = await users.start(EVE, words, variables).end();
          expect({ status: status === 0, stderr }, address).toEqual({
            status: false,
            stderr: expect.stringContaining('rdma_bind_addr: Permission denied'),
          });
        }
      },
    );

    it("reaches another user's memory only by its agent", async () => {
      const socket = await openDaemon(ALICE);
      const trust = { IWARPD_ALLOW_DAEMON_UID: String(ALICE) };
      await users.program(EVE, ['holder', socket], trust).until(/tier agent/);
      const { stdout } = await users.iwarpd(ALICE, ['status', '--json', '--socket', socket]).end();
      const { clients }: DaemonStatus = JSON.parse(stdout);
      const [client] = clients.filter(({ uid }) => uid === EVE);
      expect(client?.usage.tiers).toEqual({ shared: 1, agent: 1 });
      expect(client?.usage.tierReasons['agent']).toContain('another user');
    });
  });

  describe('HTTP of a daemon', () => {
    it('answers only its own user, who can read the token', async () => {
      const socket = await openDaemon(ALICE, ['--http', '127.0.0.1:0']);
      const file = `${socket}.http-token`;
      expect(lstatSync(file)).toMatchObject({ uid: ALICE });
      expect(lstatSync(file).mode & 0o777).toBe(0o600);
      const token = readFileSync(file, 'utf8').trim();
      const link = (await users.iwarpd(ALICE, ['page', '--socket', socket]).end()).stdout.trim();
      const { origin, hash } = new URL(link);
      expect(hash).toBe(`#token=${token}`);
      const trust = { IWARPD_ALLOW_DAEMON_UID: String(ALICE) };
      const eves = await users.iwarpd(EVE, ['page', '--socket', socket], trust).end();
      expect(eves).toMatchObject({ status: 1, stdout: '' });
      expect(eves.stderr).toMatch(/cannot read the token.*EACCES/);
      expect((await users.start(EVE, ['cat', file]).end()).status).not.toBe(0);
      const eveSees = await users
        .iwarpd(EVE, ['status', '--json', '--socket', socket], trust)
        .end();
      expect(eveSees.stdout).toContain(file);
      expect(eveSees.stdout).not.toContain(token);
      for (const [method, path] of [
        ['GET', '/mrs'],
        ['GET', '/trace'],
        ['GET', '/metrics'],
        ['POST', '/reset'],
        ['DELETE', '/faults'],
      ] as const) {
        expect((await fetch(`${origin}${path}`, { method })).status, path).toBe(401);
      }
    });
  });

  describe('links and files of another user beside a socket in /tmp', () => {
    it.each([
      ['.run', 'file'],
      ['.run.new', 'file'],
      ['.http-token', 'file'],
      ['.http-token.new', 'file'],
      ['.sysfs', 'directory'],
    ])('%s is not followed', async (suffix, kind) => {
      const precious = directoryOf(ALICE, 'precious');
      const victim = kind === 'file' ? `${precious}/victim` : precious;
      writeFileSync(`${precious}/victim`, 'precious');
      chownSync(`${precious}/victim`, ALICE, ALICE);
      const socket = users.path('s');
      const link = ['ln', '-s', victim, `${socket}${suffix}`];
      expect((await users.start(EVE, link).end()).status).toBe(0);
      const words = ['start', '--no-native', '--socket', socket, '--http', '127.0.0.1:0'];
      const { status, stderr } = await users.iwarpd(ALICE, words).end();
      expect(status).toBe(1);
      const said = stderr.trimEnd().split('\n').at(-1);
      expect(said).toMatch(/^iwarpd: cannot (?:write|create) .*another user may own the path/);
      expect(readFileSync(`${precious}/victim`, 'utf8')).toBe('precious');
      expect(spawnSync('ls', ['-A', precious], { encoding: 'utf8' }).stdout).toBe('victim\n');
      expect(existsSync(socket)).toBe(false);
    });

    it('a socket of another user is not removed, and the error names the owner', async () => {
      const socket = users.path('s');
      const trap = await trapAt(socket);
      await trap.stop();
      const words = ['start', '--no-native', '--socket', socket];
      const { status, stderr } = await users.iwarpd(ALICE, words).end();
      expect(status).toBe(1);
      expect(stderr).toContain(`a socket of uid ${EVE}`);
    });

    it('a device tree of another user is not given to programs', async () => {
      const folder = directoryOf(ALICE, 'alice');
      const socket = `${folder}/s`;
      await users.daemon(ALICE, ['--socket', socket]);
      expect(await users.iwarpd(ALICE, ['env', '--socket', socket]).end()).toMatchObject({
        status: 0,
      });
      spawnSync('chown', ['-R', String(EVE), `${socket}.sysfs`]);
      const { status, stdout, stderr } = await users
        .iwarpd(ALICE, ['env', '--socket', socket])
        .end();
      expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
      expect(stderr).toContain(`belongs to uid ${EVE}`);
    });
  });

  it('a runtime directory of another user is named as the cause', async () => {
    const runtime = directoryOf(EVE, 'run-eve');
    const environment = { XDG_RUNTIME_DIR: runtime };
    const { status, stderr } = await users
      .iwarpd(ALICE, ['start', '--no-native'], environment)
      .end();
    expect(status).toBe(1);
    expect(stderr).toMatch(/cannot create .*permission denied; unset \$XDG_RUNTIME_DIR/);
    const { stdout } = await users.iwarpd(ALICE, ['doctor', '--json'], environment).end();
    const { checks }: DoctorReport = JSON.parse(stdout);
    expect(checks.find(({ name }) => name === 'socket')).toMatchObject({
      state: 'broken',
      text: expect.stringContaining('from $XDG_RUNTIME_DIR'),
      fix: expect.stringContaining('unset XDG_RUNTIME_DIR'),
    });
    const missing = { XDG_RUNTIME_DIR: '/nonexistent/run' };
    const report = await users.iwarpd(ALICE, ['doctor'], missing).end();
    expect(report.stdout).toMatch(
      /^broken +socket +\/nonexistent\/run\/iwarpd, from \$XDG_RUNTIME_DIR, does not exist and cannot be created in \/$/m,
    );
  });

  it('a runtime directory that is missing and cannot be created is named as the cause', async () => {
    const environment = { XDG_RUNTIME_DIR: '/run/iwarpd-test-missing' };
    const started = users.iwarpd(ALICE, ['start', '--no-native'], environment);
    expect(await started.end()).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(
        /cannot create \/run\/iwarpd-test-missing\/iwarpd: permission denied; unset \$XDG_RUNTIME_DIR/,
      ),
    });
    const { stdout } = await users.iwarpd(ALICE, ['doctor', '--json'], environment).end();
    const { checks }: DoctorReport = JSON.parse(stdout);
    expect(checks.find(({ name }) => name === 'socket')).toMatchObject({
      state: 'broken',
      text: expect.stringMatching(
        /from \$XDG_RUNTIME_DIR, does not exist and cannot be created in/,
      ),
      fix: expect.stringContaining('unset XDG_RUNTIME_DIR'),
    });
  });

  it('a program is one client of a daemon in another PID namespace, which cannot see its pid', async () => {
    const folder = directoryOf(ALICE, 'alice');
    const socket = `${folder}/s`;
    await users.isolatedDaemon(ALICE, ['--socket', socket, '--log-level', 'error']);
    const open =
      'exec 3<>/dev/infiniband/uverbs0 4<>/dev/infiniband/rdma_cm; echo opened; read end';
    const variables = { LD_PRELOAD: users.preload, IWARPD_SOCKET: socket };
    await users.start(ALICE, ['bash', '-c', open], variables).until(/opened/);
    const { stdout } = await users.iwarpd(ALICE, ['status', '--json', '--socket', socket]).end();
    const { clients }: DaemonStatus = JSON.parse(stdout);
    expect(clients).toMatchObject([{ pid: 0, uid: ALICE }]);
  });

  it('a connection that outlives its process gives no access to the next process with that pid', async () => {
    const folder = directoryOf(ALICE, 'alice');
    const socket = `${folder}/s`;
    await users.daemon(ALICE, ['--socket', socket]);
    const parent = users.program(ALICE, ['parent', socket]);
    await parent.until(/heir is ready/);
    await expect.poll(() => parent.exited).toBe(true);
    const victim = await processWithPid(parent.pid, ALICE);
    try {
      const maps = readFileSync(`/proc/${victim.pid}/maps`, 'latin1');
      const [, start] = /^([0-9a-f]+)-[0-9a-f]+ rw/m.exec(maps) ?? [];
      const address = String(Number.parseInt(start ?? '0', 16));
      // Renamed into place, so that it appears whole.
      writeFileSync(`${socket}.new`, address);
      chmodSync(`${socket}.new`, 0o644);
      renameSync(`${socket}.new`, `${socket}.address`);
      const [said] = await parent.until(/registration .*\n/);
      expect(said).toMatch(/^registration refused: .*process_vm.*ESRCH/);
    } finally {
      victim.kill('SIGKILL');
      await parent.end();
    }
  });
});

describe.runIf(obstacle === '' && noCompiler === '')(
  `a hostile daemon of another user that a program trusts${obstacle}${noCompiler}`,
  () => {
    let rig: ShimRig;

    beforeAll(() => {
      rig = new ShimRig(NATIVE, 'agent-probe');
      chmodSync(rig.directory, 0o755);
    });

    afterAll(() => rig.remove());

    it.each(['confined', 'read-only', 'lying-handles', 'closed'])(
      'gets registered memory and nothing else: %s',
      async (scenario) => {
        const daemon = users.program(EVE, ['hostile-daemon']);
        const [, socket = ''] = await daemon.until(/listening at (.*)\n/);
        const variables = {
          LD_PRELOAD: rig.shim,
          IWARPD_SOCKET: socket,
          IWARPD_ALLOW_DAEMON_UID: String(EVE),
        };
        const probe = users.start(ALICE, [rig.probe('agent-probe'), scenario], variables);
        expect(await probe.end()).toEqual({ status: 0, stdout: '', stderr: '' });
      },
    );
  },
);

/** Starts a process of a user with this pid, once it is free. Retries if another process takes it first. */
async function processWithPid(pid: number, uid: number) {
  return await until(`pid ${pid}`, () => {
    writeFileSync('/proc/sys/kernel/ns_last_pid', String(pid - 1));
    const child = spawn('sleep', ['600'], { uid, gid: uid, stdio: 'ignore', env: {}, cwd: '/' });
    if (child.pid === pid) return { pid, kill: (signal: NodeJS.Signals) => child.kill(signal) };
    child.kill('SIGKILL');
    return undefined;
  });
}
