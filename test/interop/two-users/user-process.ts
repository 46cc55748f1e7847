/** Programs of two unrelated users of this machine. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { patience, until } from '#test/support/patience';
import { repositoryRoot } from '#test/support/prerequisites';

/** Users without an entry in /etc/passwd. Alice uses RDMA; Eve tries to read her memory. */
export const ALICE = 61_001;
export const EVE = 61_002;

/** Mount points, in a private namespace, for folders whose own paths other users may not access. */
const MOUNTED_ROOT = '/mnt';
const MOUNTED_NODE = '/media';

/** How a program of another user accesses the checkout and Node. */
interface Reach {
  readonly root: string;
  readonly node: string;
  /** Words in front of a command. */
  readonly words: readonly string[];
}

function asUser(uid: number): string[] {
  return ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--'];
}

function reaches({ root, node, words }: Reach): boolean {
  const file = join(root, 'dist/daemon/cli/main.js');
  const [program = '', ...rest] = [...words, ...asUser(ALICE), node, file, '--version'];
  return spawnSync(program, rest, { stdio: 'ignore', timeout: patience() }).status === 0;
}

/** By its path or, if only root can access that, in a mount namespace; undefined if neither works. */
function findReach(): Reach | undefined {
  const root = repositoryRoot();
  const plain = { root, node: process.execPath, words: [] };
  if (reaches(plain)) return plain;
  const prefix = dirname(dirname(process.execPath));
  const mount = `mount --bind "$1" ${MOUNTED_ROOT} && mount --bind "$2" ${MOUNTED_NODE} && shift 2 && exec "$@"`;
  const words = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', mount, 'sh'];
  const mounted = {
    root: MOUNTED_ROOT,
    node: `${MOUNTED_NODE}/bin/node`,
    words: [...words, root, prefix],
  };
  return reaches(mounted) ? mounted : undefined;
}

let reach: Reach | undefined;

/** Why users cannot create user namespaces here, for the title of skipped tests; '' if they can. */
export function userNamespaceObstacle(): string {
  const [program = '', ...rest] = [...asUser(ALICE), 'unshare', '--user', '--', 'true'];
  const { status } = spawnSync(program, rest, { stdio: 'ignore', timeout: patience() });
  return status === 0 ? '' : ' (users may not make user namespaces here)';
}

/** Why two users are unavailable here, for the title of skipped tests; '' when available. */
export function twoUsersObstacle(): string {
  if (process.getuid?.() !== 0) return ' (needs root)';
  reach = findReach();
  return reach === undefined ? ' (needs setpriv, and a checkout that other users can reach)' : '';
}

/** Output and status of a finished program. */
interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running program. */
export class UserProcess {
  readonly #child: ChildProcess;
  readonly #ended: Promise<Ended>;
  stdout = '';
  stderr = '';
  /** True once it has ended and all output was read. */
  #complete = false;

  constructor(uid: number, words: readonly string[], environment: Record<string, string>) {
    const [program = '', ...rest] = [...(reach?.words ?? []), ...asUser(uid), ...words];
    this.#child = spawn(program, rest, {
      // Without this process's runtime directory and socket.
      env: { PATH: process.env['PATH'] ?? '', ...environment },
      cwd: '/',
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#child.stdout?.on('data', (bytes) => {
      this.stdout += bytes;
    });
    this.#child.stderr?.on('data', (bytes) => {
      this.stderr += bytes;
    });
    this.#ended = once(this.#child, 'close').then(([status]) => {
      this.#complete = true;
      return { status, stdout: this.stdout, stderr: this.stderr };
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** The process has ended, though others may still have its output open. */
  get exited(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Waits until its output matches; throws with the output when it ends or takes too long. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    const lack = (): string => `${pattern}: ${this.stdout}\n${this.stderr}`;
    return await until(lack, () => {
      const match = pattern.exec(this.stdout);
      if (match === null && this.#complete) throw new Error(`ended without ${lack()}`);
      return match;
    });
  }

  async end(): Promise<Ended> {
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), patience());
    const ended = await this.#ended;
    clearTimeout(timer);
    return ended;
  }

  async stop(signal: NodeJS.Signals = 'SIGKILL'): Promise<Ended> {
    this.#child.kill(signal);
    return await this.end();
  }
}

/** A directory with the permissions of /tmp, and the programs that use it. */
export class TwoUsers {
  /** Writable by everyone, and sticky; the temporary directory of the programs. */
  readonly tmp = mkdtempSync(join(tmpdir(), 'iwarpd-two-users-'));
  readonly #running: UserProcess[] = [];

  constructor() {
    chmodSync(this.tmp, 0o1777);
  }

  path(name: string): string {
    return join(this.tmp, name);
  }

  /** The path by which the users access a file of the checkout. */
  file(path: string): string {
    return join(reach?.root ?? '', path);
  }

  get preload(): string {
    return this.file(`dist/native-bridge/preload/linux-${process.arch}/libiwarpd-preload.so`);
  }

  start(
    uid: number,
    words: readonly string[],
    environment: Record<string, string> = {},
  ): UserProcess {
    const started = new UserProcess(uid, words, { TMPDIR: this.tmp, ...environment });
    this.#running.push(started);
    return started;
  }

  /** Starts `iwarpd`, run by the command `within` if that is given. */
  iwarpd(
    uid: number,
    words: readonly string[],
    environment: Record<string, string> = {},
    within: readonly string[] = [],
  ): UserProcess {
    const main = this.file('dist/daemon/cli/main.js');
    return this.start(uid, [...within, reach?.node ?? '', main, ...words], environment);
  }

  /** Starts a daemon in its own PID namespace, and waits until it is ready. */
  async isolatedDaemon(uid: number, words: readonly string[]): Promise<void> {
    const main = this.file('dist/daemon/cli/main.js');
    // It ends with `unshare`, its only process that is visible here.
    const [setpriv = '', ...user] = asUser(uid);
    const alone = ['unshare', '--pid', '--fork', '--', setpriv, '--pdeathsig=KILL', ...user];
    const start = [reach?.node ?? '', main, 'start', '--no-native', ...words];
    await this.start(0, [...alone, ...start]).until(/ready/);
  }

  /** Starts a daemon in a user namespace that maps no user, and waits until it is ready. */
  async unmappedDaemon(uid: number, words: readonly string[]): Promise<void> {
    const main = this.file('dist/daemon/cli/main.js');
    const start = [reach?.node ?? '', main, 'start', '--no-native', ...words];
    await this.start(uid, ['unshare', '--user', '--', ...start]).until(/ready/);
  }

  /** Starts a part of `user-programs.ts`. */
  program(
    uid: number,
    words: readonly string[],
    environment: Record<string, string> = {},
  ): UserProcess {
    const file = this.file('dist/test/interop/two-users/user-programs.js');
    return this.start(uid, [reach?.node ?? '', file, ...words], environment);
  }

  /** Starts a daemon and waits until it is ready. */
  async daemon(
    uid: number,
    words: readonly string[],
    environment: Record<string, string> = {},
  ): Promise<UserProcess> {
    const options = ['--no-native', '--log-level', 'error', '--device', 'a=127.0.0.2'];
    const started = this.iwarpd(uid, ['start', ...options, ...words], environment);
    await started.until(/ready/);
    return started;
  }

  /** Ends the programs that are still running and removes the directory. */
  async clean(): Promise<void> {
    await Promise.all(this.#running.splice(0).map((each) => each.stop()));
    rmSync(this.tmp, { recursive: true, force: true });
  }
}
