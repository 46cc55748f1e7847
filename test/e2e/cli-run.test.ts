import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { preloadPath } from '#daemon/console/preload-library';
import { CommandFolder, commandWords, refusedWords, runCommand } from '../support/cli-process.ts';
import { until } from '../support/patience.ts';

/** The build makes the library in dist/, wherever this file is run from. */
const SHIM = preloadPath();
const built = existsSync(SHIM);
const reason = built ? '' : ' (no preload library: no C compiler when this was built)';

/** Whether programs can be built with the address sanitizer on this machine. */
const sanitized =
  spawnSync('gcc', ['-fsanitize=address', '-x', 'c', '-', '-o', '/dev/null'], {
    input: 'int main(void) { return 0; }',
  }).status === 0;

const folder = new CommandFolder();
let socket: string;

beforeEach(() => {
  socket = folder.file('d/iwarpd.sock');
});

afterEach(() => folder.clean());

/** Runs the command without a daemon, so it starts a private one. */
const run = (...words: readonly string[]) =>
  runCommand(['run', ...words], { XDG_RUNTIME_DIR: folder.path });

/** Runs the command on the daemon of the test. */
const runOn = (...words: readonly string[]) => runCommand(['run', '--socket', socket, ...words]);

function privateFolders(): string[] {
  return readdirSync(tmpdir()).filter((name) => name.startsWith('iwarpd-run-'));
}

describe.skipIf(!built)(`iwarpd run${reason}`, () => {
  it('sets the environment for the program and its children', async () => {
    const inner = 'echo "$LD_PRELOAD $IWARPD_SOCKET"; ls "$SYSFS_PATH/class/infiniband"';
    const { status, stdout, stderr } = await run('--', '/bin/sh', '-c', `/bin/sh -c '${inner}'`);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const [environment = '', ...devices] = stdout.trim().split('\n');
    expect(environment.split(' ')[0]).toBe(SHIM);
    expect(devices).toEqual(['iwarp0', 'roce0']);
  });

  it.skipIf(!sanitized)('loads the runtime of a program built with ASAN first', async () => {
    const source = folder.file('asan.c');
    writeFileSync(source, '#include <stdio.h>\nint main(void) { return puts("ran") < 0; }\n');
    const program = folder.file('asan');
    execFileSync('gcc', ['-fsanitize=address', '-o', program, source]);
    const { status, stdout, stderr } = await run('--', program);
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: 'ran\n', stderr: '' });
  });

  it('starts a private daemon for the program, which leaves nothing behind', async () => {
    const before = privateFolders();
    const { stdout } = await run('--', '/bin/sh', '-c', 'echo "$IWARPD_SOCKET"');
    expect(stdout).toMatch(/iwarpd-run-.*iwarpd\.sock\n$/);
    const left = privateFolders().filter((name) => stdout.includes(name));
    expect(left).toEqual([]);
    expect(before.some((name) => stdout.includes(name))).toBe(false);
  });

  it('uses the running daemon, unless the options describe a private one', async () => {
    await folder.daemon(socket);
    const script = 'echo "$IWARPD_SOCKET"; ls "$SYSFS_PATH/class/infiniband"';
    const print = ['--', '/bin/sh', '-c', script];
    expect((await runOn(...print)).stdout).toBe(`${socket}\niwarp0\nroce0\n`);
    expect((await runOn('--fresh', ...print)).stdout).toMatch(/iwarpd-run-/);
    const device = await runOn('--device', 'mine=127.0.0.2', ...print);
    expect(device.stdout).toMatch(/iwarpd-run-.*\nmine\n$/s);
    const read = 'cat "$SYSFS_PATH"/class/infiniband/mine/{node_type,ports/1/gids/1}';
    const roce = await runOn('--device', 'mine=roce:127.0.0.2', '--', '/bin/bash', '-c', read);
    expect(roce.stdout).toBe('1: CA\n0000:0000:0000:0000:0000:ffff:7f00:0002\n');
  });

  it.each([
    ['--instance', 'typo'],
    ['--socket', '/nonexistent/iwarpd.sock'],
  ])('fails if %s %s names no daemon, and does not run the program', async (option, value) => {
    const words = ['run', option, value, '--', 'echo', 'ran'];
    const finished = await runCommand(words, { XDG_RUNTIME_DIR: folder.path });
    expect(finished).toMatchObject({ status: 1, stdout: '' });
    expect(finished.stderr).toContain(`start it with \`npx iwarpd start ${option} ${value}\``);
    expect(finished.stderr).toMatch(/^iwarpd: no daemon at [^\n]+\n$/);
  });

  it('fails if the program leaves objects open, and records the evidence', async () => {
    const files = ['capture', 'trace', 'junit', 'log-file'].flatMap((option) => [
      `--${option}`,
      folder.file(option),
    ]);
    const script = 'echo out; exec 3<>/dev/infiniband/uverbs0; kill -9 $$';
    const words = ['--expect-clean', ...files, '--', '/bin/bash', '-c', script];
    const failed = await runCommand(['run', '--fresh', ...words], { GITHUB_ACTIONS: 'true' });
    expect(failed).toMatchObject({ signal: 'SIGKILL', stdout: 'out\n' });
    const [annotation, report] = failed.stderr.split('\n');
    expect(annotation).toMatch(/^::error title=iwarpd run::\/bin\/bash .*: ended by SIGKILL/);
    expect(report).toMatch(/^iwarpd: .*: ended by SIGKILL$/);
    expect(readFileSync(folder.file('junit'), 'utf8')).toMatch(
      /<failure message=.*ended by SIGKILL/,
    );
    expect(readFileSync(folder.file('junit'), 'utf8')).toContain('<system-out>out\n</system-out>');
    expect(readFileSync(folder.file('log-file'), 'utf8')).toContain('"msg":"stopped"');
    // The magic number of pcapng.
    expect(readFileSync(folder.file('capture')).readUInt32LE(0)).toBe(0x0a0d0d0a);
    expect(existsSync(folder.file('trace'))).toBe(true);
  });

  it('reports the refusals of a program that fails', async () => {
    const program = refusedWords([0, 0, 2 ** 30]);
    const words = ['run', '--fresh', '--junit', folder.file('junit'), '--', ...program];
    const failed = await runCommand(words, { GITHUB_ACTIONS: 'true' });
    expect(failed).toMatchObject({ status: 3, stdout: '' });
    const zero = /createCQ: EINVAL: cqe must be 1 to \d+, not 0 \(iwarp0\) \[2 times\]\n/.source;
    const reported = new RegExp(`refusals:\\n.*${zero}.*createCQ: EINVAL: .*, not 1073741824 `);
    expect(failed.stderr).toMatch(reported);
    expect(failed.stderr).toMatch(/^::error .*%0Arefusals: 3%0A/);
    expect(readFileSync(folder.file('junit'), 'utf8')).toMatch(reported);
  });

  it('writes a JUnit file also for a program that cannot run', async () => {
    const file = folder.file('junit.xml');
    expect((await run('--junit', file, '--', 'no-such-program-anywhere')).status).toBe(127);
    expect(readFileSync(file, 'utf8')).toContain(
      '<error message="no such program: no-such-program-anywhere"/>',
    );
  });

  it('adds the given faults, and rejects invalid ones', async () => {
    const faults = ['--fault', 'errno --verb regMR --errno ENOMEM', '--fault', 'drop --nth 3'];
    const { stdout } = await run(...faults, '--', ...commandWords(['fault', 'list']));
    expect(stdout).toMatch(/^1 +errno verb regMR, errno ENOMEM .*\n2 +drop nth 3/m);
    const wrong = await run('--fault', 'drop --nth x', '--', 'true');
    expect(wrong).toMatchObject({ status: 2, stdout: '' });
    expect(wrong.stderr).toContain("invalid value 'x' for --nth: must be a whole number");
    expect((await run('--fault', 'droop', '--', 'true')).stderr).toContain('Did you mean drop?');
  });

  it('names the faults that never triggered, which are a failure with --expect-clean', async () => {
    const fault = ['--fault', 'corrupt-stag --opcode read-request --nth 3'];
    const line = 'fault 1 (corrupt-stag opcode read-request, nth 3) never triggered';
    const printed = await run(...fault, '--', 'true');
    expect(printed).toMatchObject({ status: 0, stderr: `iwarpd: ${line}\n` });
    const clean = await run(...fault, '--expect-clean', '--', 'true');
    expect(clean).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^iwarpd: true: succeeded, but fault 1 never triggered\n/),
    });
    expect(clean.stderr).toContain(line);
  });

  it('passes arguments unchanged, with and without --', async () => {
    const script = ['/bin/sh', '-c', 'printf "<%s>" "$@"', 'sh', '--fresh', '-x', '--', 'a b'];
    expect((await run(...script)).stdout).toBe('<--fresh><-x><--><a b>');
    expect((await run('--', ...script)).stdout).toBe('<--fresh><-x><--><a b>');
  });

  it('exits with the status of the program, and reports it', async () => {
    const finished = await run('--', '/bin/sh', '-c', 'exit 7');
    const stderr = 'iwarpd: /bin/sh -c exit 7: ended with status 7\n';
    expect(finished).toMatchObject({ status: 7, stdout: '', stderr });
    expect(await run('--', 'true')).toMatchObject({ status: 0, stdout: '', stderr: '' });
  });

  it('adds nothing to the output of a program that fails on a running daemon', async () => {
    await folder.daemon(socket);
    expect(await runOn('--', 'false')).toMatchObject({ status: 1, stdout: '', stderr: '' });
  });

  it('ends by the signal that ended the program', async () => {
    expect((await run('--', '/bin/sh', '-c', 'kill -TERM $$')).signal).toBe('SIGTERM');
    expect((await run('--', '/bin/sh', '-c', 'kill -KILL $$')).signal).toBe('SIGKILL');
    expect((await run('--', '/bin/sh', '-c', 'kill -SEGV $$')).status).toBe(128 + 11);
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1'] as const)(
    'passes %s on to the program',
    async (signal) => {
      const name = signal.slice(3);
      const script = `trap 'echo caught; exit 3' ${name}; echo ready; while :; do sleep 0.05; done`;
      const program = ['/bin/sh', '-c', script];
      const command = folder.start(['run', '--fresh', '--socket', socket, '--', ...program]);
      await command.until(/ready/);
      command.signal(signal);
      expect(await command.end()).toMatchObject({ status: 3, stdout: 'ready\ncaught\n' });
    },
  );

  it('ends by a signal that arrives before the program starts, and says so in the JUnit file', async () => {
    const junit = folder.file('junit.xml');
    // Reading it delays the start.
    const config = folder.file('config');
    execFileSync('mkfifo', [config]);
    const words = ['--junit', junit, '--config', config, '--', 'echo', 'ran'];
    const command = folder.start(['run', '--fresh', ...words]);
    await until('the JUnit file', () => existsSync(junit));
    expect(readFileSync(junit, 'utf8')).toContain('killed before it ended');
    command.signal('SIGTERM');
    writeFileSync(config, '{}');
    const finished = await command.end();
    const text = 'ended by SIGTERM, before the program ran';
    expect(finished).toMatchObject({ signal: 'SIGTERM', stdout: '', stderr: `iwarpd: ${text}\n` });
    expect(readFileSync(junit, 'utf8')).toContain(`<error message="${text}"/>`);
  });

  it('exits with a shell’s status if the program is missing or not executable', async () => {
    const missing = await run('--', 'no-such-program-anywhere');
    expect(missing).toMatchObject({ status: 127, stdout: '' });
    expect(missing.stderr).toMatch(/^iwarpd: no such program: no-such-program-anywhere\n$/);
    writeFileSync(folder.file('text'), 'text');
    expect((await run('--', folder.file('text'))).status).toBe(126);
  });

  it('reports in one line that it cannot preload into a program', async () => {
    const bytes = readFileSync(process.execPath).subarray(0, 4096);
    // Without segments, the program names no dynamic loader.
    bytes.writeUInt16LE(0, 56);
    writeFileSync(folder.file('static'), bytes, { mode: 0o755 });
    const { stderr } = await run('--', folder.file('static'));
    expect(stderr.split('\n')[0]).toMatch(/^iwarpd: .*static is statically linked/);
  });

  it('starts a program of another C library, whose loader refuses the preload library', async () => {
    // glibc's loader under the name of musl's, and a program that names that file.
    const loader = 'ld-musl-x86_64.so.1';
    const bytes = readFileSync('/usr/bin/printenv');
    const own = /\/lib[\w/.-]*\/ld-linux[\w.-]*\0/.exec(bytes.toString('latin1'))?.[0] ?? '';
    bytes.write(loader.padEnd(own.length, '\0'), bytes.indexOf(own), 'latin1');
    symlinkSync(own.slice(0, -1), folder.file(loader));
    writeFileSync(folder.file('foreign'), bytes, { mode: 0o755 });
    const words = ['run', '--fresh', '--', './foreign', 'LD_PRELOAD'];
    const ended = await runCommand(words, { LD_PRELOAD: '' }, ['env', '-C', folder.path]);
    expect(ended).toMatchObject({ status: 0, stdout: '\n' });
    expect(ended.stderr).toMatch(/^iwarpd: .*foreign is linked to another C library .*musl/);
  });

  it('leaves a program that uses no RDMA alone', async () => {
    const script = 'seq 1 1000 | sort -n | tail -n 1; : > /dev/null; cat /proc/self/comm';
    expect((await run('--', '/bin/sh', '-c', script)).stdout).toBe('1000\ncat\n');
  });
});

describe.skipIf(!built)(`iwarpd env${reason}`, () => {
  it('prints what run sets, for a shell', async () => {
    await folder.daemon(socket);
    const { status, stdout, stderr } = await runCommand(['env', '--socket', socket]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain(`export LD_PRELOAD=${SHIM}\n`);
    expect(stdout).toContain(`export IWARPD_SOCKET=${socket}\n`);
    expect(stdout).toMatch(/^export SYSFS_PATH=.*\n/m);
    expect(stdout).toContain('export FI_VERBS_DEVICE_NAME=iwarp0\n');
    expect(stdout).toContain('export NCCL_GIN_TYPE=0\n');
    expect(stdout).toContain("export NCCL_IB_HCA='^=iwarp0'\n");
  });

  it('sets no libfabric device if the first one is right, or the user has chosen one', async () => {
    const print = ['--', '/bin/sh', '-c', 'echo "<$FI_VERBS_DEVICE_NAME>"'];
    expect((await run('--device', 'a=127.0.0.2', ...print)).stdout).toBe('<>\n');
    const own = { XDG_RUNTIME_DIR: folder.path, FI_VERBS_DEVICE_NAME: 'roce0' };
    expect((await runCommand(['run', ...print], own)).stdout).toBe('<roce0>\n');
  });

  it('leaves the choices of NCCL to the user, if there are any', async () => {
    const print = ['--', '/bin/sh', '-c', 'echo "<$NCCL_GIN_TYPE> <$NCCL_IB_HCA>"'];
    expect((await run(...print)).stdout).toBe('<0> <^=iwarp0>\n');
    const own = { XDG_RUNTIME_DIR: folder.path, NCCL_GIN_TYPE: '2', NCCL_IB_HCA: 'roce' };
    expect((await runCommand(['run', ...print], own)).stdout).toBe('<2> <roce>\n');
  });

  it('reports that no daemon runs', async () => {
    const { status, stderr } = await runCommand(['env', '--socket', socket]);
    expect(status).toBe(0);
    expect(stderr).toMatch(
      /^iwarpd: no daemon at .*; start it with `npx iwarpd start --socket [^\n]+`\n$/,
    );
  });
});
