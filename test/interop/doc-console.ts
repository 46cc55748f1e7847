/**
 * Types the commands of a console block into a shell, in its own folder and, where possible, network
 * namespace, and keeps the output of each.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DocCommand } from '../support/doc-examples.ts';
import { PROGRAM_MS, quiet, until } from '../support/patience.ts';
import { repositoryRoot } from '../support/prerequisites.ts';

export interface TypedCommand {
  readonly command: string;
  readonly lines: readonly string[];
  /** Exit status; undefined while it runs in the background. */
  readonly status: number | undefined;
}

/** Time limit for a background command to print the shown output. */
const SETTLE_MS = 3000;

/** Matches commands that run until they are killed. */
const STAYING = /^iwarpd (?:start|nfs serve|trace)\b(?!.*(?:--help|--detach|[|&]\s*$))/;

export class DocConsole {
  readonly folder = mkdtempSync(join(tmpdir(), 'iwarpd-docs-'));
  #shell: ChildProcess | undefined;

  constructor() {
    const root = repositoryRoot();
    const bin = join(this.folder, '.bin');
    mkdirSync(bin);
    mkdirSync(join(this.folder, '.run'), { mode: 0o700 });
    symlinkSync(join(root, 'dist/daemon/cli/main.js'), join(bin, 'iwarpd'));
    // In a clone the command is `npx iwarpd`; npx itself is not under test.
    writeFileSync(join(bin, 'npx'), '#!/bin/sh\nexec "$@"\n', { mode: 0o755 });
    for (const name of ['docker', 'test']) symlinkSync(join(root, name), join(this.folder, name));
  }

  /** Types `given`, unseen, and then the commands. Rejects when they take too long. */
  async type(
    given: readonly string[],
    commands: readonly DocCommand[],
  ): Promise<readonly TypedCommand[]> {
    const script = [
      'ip link set lo up 2>/dev/null',
      ...given.map((line) => `{ ${line}\n} >>.given 2>&1`),
      ...commands.map(({ command }, index) => typed(command, index)),
      'echo end >.end',
      'wait',
    ];
    writeFileSync(join(this.folder, '.script'), `${script.join('\n')}\n`);
    const { PATH = '' } = process.env;
    this.#shell = spawn(shellWords()[0] ?? 'bash', [...shellWords().slice(1), '.script'], {
      cwd: this.folder,
      detached: true,
      stdio: 'ignore',
      env: {
        PATH: `${join(this.folder, '.bin')}:${PATH}:/usr/sbin`,
        HOME: this.folder,
        TMPDIR: this.folder,
        XDG_RUNTIME_DIR: join(this.folder, '.run'),
        LANG: 'C.UTF-8',
      },
    });
    const end = (): string => `the end of ${this.#read('.given')}`;
    await until(end, () => this.#read('.end') !== '', PROGRAM_MS);
    return this.#results(commands);
  }

  /** Waits for further output of background commands, until `enough` or a timeout. */
  async settle(
    commands: readonly DocCommand[],
    enough: (typed: readonly TypedCommand[]) => boolean,
  ): Promise<readonly TypedCommand[]> {
    const isEnough = (): boolean => enough(this.#results(commands));
    await until('more', isEnough, SETTLE_MS).catch(() => undefined);
    return this.#results(commands);
  }

  /** The output of hidden commands. */
  get said(): string {
    return this.#read('.given');
  }

  /** Ends all that still runs, and removes the folder. */
  async close(): Promise<void> {
    this.#stopDetached();
    const shell = this.#shell;
    if (shell?.pid !== undefined && shell.exitCode === null) {
      const ended = new Promise((resolve) => shell.once('exit', resolve));
      process.kill(-shell.pid, 'SIGTERM');
      await Promise.race([ended, quiet(2000)]);
      try {
        process.kill(-shell.pid, 'SIGKILL');
      } catch {
        // No process is left.
      }
      await Promise.race([ended, quiet(2000)]);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A daemon started with --detach has its own session, and a log beside its socket. */
  #stopDetached(): void {
    const place = join(this.folder, '.run/iwarpd');
    if (!existsSync(place) || !readdirSync(place).some((name) => name.endsWith('.log'))) return;
    const environment = { ...process.env, XDG_RUNTIME_DIR: join(this.folder, '.run') };
    spawnSync(join(this.folder, '.bin/iwarpd'), ['stop', '--all'], { env: environment });
  }

  #results(commands: readonly DocCommand[]): TypedCommand[] {
    return commands.map(({ command }, index) => {
      const status = this.#read(`.status${index}`);
      const lines = this.#read(`.out${index}`).split('\n');
      if (lines.at(-1) === '') lines.pop();
      return { command, lines, status: status === '' ? undefined : Number(status) };
    });
  }

  #read(name: string): string {
    const path = join(this.folder, name);
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  }
}

/** The lines of the shell that run one command and keep its output. */
function typed(command: string, index: number): string {
  const out = `.out${index}`;
  if (STAYING.test(command)) {
    return [`${command} >${out} 2>&1 &`, `until [[ -s ${out} ]]; do sleep 0.05; done`].join('\n');
  }
  if (/&\s*$/.test(command)) {
    const [, front = ''] = /^(.*?)\s*&\s*$/s.exec(command) ?? [];
    // Background commands are ready, even on a busy machine, before the next line is typed.
    return `{ ${front}\n} >${out} 2>&1 &\nsleep 3`;
  }
  return `{ ${command}\n} >${out} 2>&1; echo $? >.status${index}`;
}

let words: readonly string[] | undefined;

/** A shell in its own network namespace, since examples name ports; a plain one where not permitted. */
function shellWords(): readonly string[] {
  words ??= [['unshare', '--net'], ['unshare', '--net', '--map-root-user'], []]
    .map((prefix) => [...prefix, 'bash'])
    .find(([program = '', ...rest]) => spawnSync(program, [...rest, '-c', 'true']).status === 0);
  return words ?? ['bash'];
}
