import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CommandFolder, commandWords, runCommand } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const folder = temporaryFolder();

/** The output of a command of ours, in a file. */
async function printed(...words: string[]): Promise<string> {
  const { status, stdout, stderr } = await runCommand(words);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const file = join(folder, words.join('-'));
  writeFileSync(file, stdout);
  return file;
}

/** Finds `iwarpd` in the path, and the daemons of the test. */
const environment = {
  ...process.env,
  PATH: `${join(folder, 'bin')}:${process.env['PATH']}`,
  XDG_RUNTIME_DIR: folder,
};
const daemons = new CommandFolder();
afterAll(() => daemons.clean());

let isStarted = false;

/** Starts a daemon with devices a and b, once. */
async function startNamed(): Promise<void> {
  if (isStarted) return;
  isStarted = true;
  const command = commandWords([])
    .map((word) => `'${word}'`)
    .join(' ');
  mkdirSync(join(folder, 'bin'));
  writeFileSync(join(folder, 'bin', 'iwarpd'), `#!/bin/sh\nexec ${command} "$@"\n`, {
    mode: 0o755,
  });
  const devices = ['--device', 'a=127.0.0.2', '--device', 'b=127.0.0.3', '--no-native'];
  const words = ['start', '--instance', 'left-one', '--network', 'isolated', ...devices];
  await daemons.start(words, { XDG_RUNTIME_DIR: folder }).until(/ready/);
}

function run(command: string, ...words: string[]): string {
  const { stdout, stderr, status } = spawnSync(command, words, {
    encoding: 'utf8',
    input: '',
    env: environment,
  });
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  return stdout;
}

/** Words that bash offers in place of the last one of a line. */
async function offeredByBash(line: string): Promise<string[]> {
  const script = await printed('completion', 'bash');
  const words = line.split(' ');
  const state = `COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')})`;
  const steps = `source ${script}; ${state}; COMP_CWORD=${words.length - 1}; _iwarpd`;
  return run('bash', '-c', `${steps}; echo "\${COMPREPLY[@]}"`).split(/\s+/).filter(Boolean);
}

describe('completion in bash', () => {
  it('offers commands, and those below them', async () => {
    expect(await offeredByBash('iwarpd st')).toEqual(['start', 'status', 'stop']);
    expect(await offeredByBash('iwarpd fault ')).toEqual(expect.arrayContaining(['add', 'list']));
    expect(await offeredByBash('iwarpd nfs se')).toEqual(['serve']);
  });

  it('offers the options of the command, wherever it stands', async () => {
    expect(await offeredByBash('iwarpd status --js')).toEqual(['--json']);
    expect(await offeredByBash('iwarpd fault add delay --ev')).toEqual(['--every']);
  });

  it('offers the values of an option, if they are known', async () => {
    expect(await offeredByBash('iwarpd start --log-level d')).toEqual(['debug']);
    expect(await offeredByBash('iwarpd fault add delay --direction ')).toEqual(['in', 'out']);
    expect(await offeredByBash('iwarpd start --device ')).toEqual([]);
    expect(await offeredByBash('iwarpd start --config ')).toEqual([]);
  });

  it('offers the kinds of faults', async () => {
    expect(await offeredByBash('iwarpd fault add dr')).toEqual(['drop']);
    expect(await offeredByBash('iwarpd fault add drop --verb reg')).toEqual(['regMR']);
  });

  it('offers the daemons of the user, and the devices of the one that the line names', async () => {
    await startNamed();
    expect(await offeredByBash('iwarpd stop le')).toEqual(['left-one']);
    expect(await offeredByBash('iwarpd status --instance ')).toEqual(['left-one']);
    expect(await offeredByBash('iwarpd trace --instance left-one --device ')).toEqual(['a', 'b']);
    expect(await offeredByBash('iwarpd trace --instance none --device ')).toEqual([]);
  });

  it('leaves the words of a program alone', async () => {
    expect(await offeredByBash('iwarpd run -- ib_write_bw --')).toEqual([]);
  });
});

describe('the manual page', () => {
  it('has examples of every command, which the command accepts', async () => {
    const page = (await runCommand(['manual'])).stdout
      .replaceAll('\\-', '-')
      .replaceAll('\\e', '\\');
    const sections = page.split(/^\.SS /m).slice(1);
    expect(sections.length).toBeGreaterThan(20);
    const lines: string[] = [];
    for (const section of sections) {
      const [name = ''] = section.split('\n');
      const examples = [...section.matchAll(/^\.EX\n(.+)\n\.EE$/gm)].map(([, line]) => line ?? '');
      expect({ name, examples: examples.length }).not.toMatchObject({ examples: 0 });
      for (const line of examples) expect(line).toContain(`iwarpd ${name}`);
      lines.push(...examples);
    }
    // Their prerequisites are missing, so commands that would keep running exit at once. They fail
    // for another reason than their command line (status 2).
    writeFileSync(join(folder, 'missing'), 'a file, so no directory is made below it');
    const nowhere = {
      IWARPD_SOCKET: join(folder, 'missing', 'no-daemon.sock'),
      XDG_RUNTIME_DIR: join(folder, 'missing'),
      XDG_DATA_HOME: folder,
      HOME: folder,
      PATH: join(folder, 'missing'),
    };
    const tried = lines.filter((each) => !each.startsWith('iwarpd bench '));
    const ends = tried.map(async (line) => {
      const [, text = ''] = /iwarpd (.+?)(?: \| .*| > .*|\)"?)?$/.exec(line) ?? [];
      const quiet = text.replace('--timeout 30', '--timeout 0');
      const words = [...quiet.matchAll(/'([^']*)'|\S+/g)].map(([word, quoted]) => quoted ?? word);
      const { status, stderr } = await runCommand(words, nowhere);
      expect({ line, stderr, fails: status === 2 || status === undefined }).toEqual({
        line,
        stderr,
        fails: false,
      });
    });
    await Promise.all(ends);
  });

  it('has the examples of --help', async () => {
    const { stdout } = await runCommand(['fault', 'add', '--help']);
    expect(stdout).toMatch(/^Examples:\n {2}\S.*:\n {4}iwarpd fault add errno .*--every 3$/m);
    expect(stdout.indexOf('Kinds:')).toBeLessThan(stdout.indexOf('Examples:'));
  });
});

describeWith(['shells'], 'completion in other shells', () => {
  it('is a script that zsh accepts, and that describes every command', async () => {
    const script = await printed('completion', 'zsh');
    const steps = `autoload -Uz compinit; compinit -D -u; source ${script}; whence -w _iwarpd_fault_add`;
    expect(run('zsh', '-f', '-c', steps)).toBe('_iwarpd_fault_add: function\n');
  });

  it('asks a daemon for names in zsh', async () => {
    await startNamed();
    const script = await printed('completion', 'zsh');
    const line = 'words=(iwarpd trace --instance left-one --device ""); CURRENT=6';
    const stub = 'compadd() { print -l $found }';
    const steps = `autoload -Uz compinit; compinit -D -u; source ${script}; ${stub}; ${line}`;
    expect(run('zsh', '-f', '-c', `${steps}; _iwarpd_names devices`)).toBe('a\nb\n');
    expect(run('zsh', '-f', '-c', `${steps}; _iwarpd_names list`)).toBe('left-one\n');
  });

  it('offers commands and options in fish', async () => {
    const script = await printed('completion', 'fish');
    const offered = (line: string) =>
      run('fish', '--no-config', '-c', `source ${script}; complete -C '${line}'`)
        .split('\n')
        .map((each) => each.split('\t')[0]);
    expect(offered('iwarpd st')).toEqual(expect.arrayContaining(['start', 'status']));
    expect(offered('iwarpd fault add --ev')).toContain('--every');
    expect(offered('iwarpd start --log-level d')).toContain('debug');
    await startNamed();
    expect(offered('iwarpd stop le')).toContain('left-one');
    expect(offered('iwarpd trace --instance left-one --device ')).toEqual(['a', 'b', '']);
  });

  it('generates a manual page without groff warnings', async () => {
    const page = await printed('manual');
    const text = run('groff', '-ww', '-man', '-Tascii', '-P-cbou', page);
    expect(text).toMatch(/^NAME\n +iwarpd - /m);
    expect(text).toMatch(/^ +fault add\n/m);
    expect(text).toMatch(/--every <N>\n +Trigger on every/);
    expect(text).toMatch(/^ENVIRONMENT\n +IWARPD_SOCKET/m);
  });
});
