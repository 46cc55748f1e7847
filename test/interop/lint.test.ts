/** programs/linted.c, which breaks one rule at a time, gets the advice in daemon/LINT.md. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LINT_RULES } from '#daemon/lint/findings';
import { CommandFolder, type Finished, runCommand } from '../support/cli-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { compileProgram } from './c-programs.ts';

const DOCUMENT = readFileSync(join(repositoryRoot(), 'daemon/LINT.md'), 'utf8');
/** Arguments of the program, by the rule that it breaks; by default the rule and GID index 0. */
const WORDS: Readonly<Record<string, readonly string[]>> = { 'gid-of-host': ['none', '1'] };
const folder = new CommandFolder();
let program: string;

async function linted(how: string, words: readonly string[]): Promise<Finished> {
  const device = ['--device', 'roce0=roce:127.0.0.1'];
  return await runCommand(['run', how, ...device, '--', ...words]);
}

/** A line without the parts that differ from run to run, and without the process. */
function steady(line: string): string {
  return line
    .replaceAll(/0x[0-9a-f]+/g, '0x…')
    .replaceAll(/queue pair \d+/g, 'queue pair N')
    .replaceAll(/\d+ times/g, 'N times')
    .replace(/ \(\w+\[\d+\] on roce0\)$/, '');
}

describeWith(['native'], 'run --lint', () => {
  beforeAll(() => {
    program = compileProgram('linted');
  });

  afterAll(() => folder.clean());

  it.each(LINT_RULES)('advises as documented: %s', async (rule) => {
    const [broken = rule, gidIndex = '0'] = WORDS[rule] ?? [];
    const { stderr } = await linted('--lint', [program, broken, gidIndex]);
    const advice = stderr.split('\n').filter((line) => line.startsWith(`  ${rule}: `));
    const documented = new RegExp(`^\\| \`${rule}\` +\\| \`(.*)\` *\\|$`, 'm').exec(DOCUMENT);
    expect(
      advice.map((line) => steady(line.slice(`  ${rule}: `.length))),
      stderr,
    ).toEqual([documented?.[1]]);
    const see = /^iwarpd: lint has \d findings?; see (.*)$/m.exec(stderr)?.[1];
    expect(see).toBe(join(repositoryRoot(), 'daemon/LINT.md'));
    expect(DOCUMENT).toContain(`\n## ${rule}\n`);
  });

  it.each(['none', 'none-events'])('is silent about a correct program: %s', async (broken) => {
    const { status, stderr } = await linted('--lint=error', [program, broken, '0']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });

  it('fails for advice with --lint=error, also in the JUnit file', async () => {
    const junit = folder.file('junit.xml');
    const { status, stderr } = await linted('--lint=error', ['sh', '-c', `${program} mr-unused 0`]);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^iwarpd: sh -c .*: succeeded, but lint has 1 finding; see \//);
    const words = ['run', '--lint=error', '--junit', junit, '--', program, 'mr-unused', '0'];
    expect((await runCommand(words)).status).toBe(1);
    expect(readFileSync(junit, 'utf8')).toMatch(
      /<failure message=".*lint has 1 finding.*\n.*mr-unused: /,
    );
  });

  it('keeps the exit status of a program that fails', async () => {
    const { status } = await linted('--lint=error', ['sh', '-c', `${program} mr-unused 0; exit 7`]);
    expect(status).toBe(7);
  });

  it('advises programs in TypeScript in their own terms', async () => {
    const script = folder.file('program.mjs');
    const index = join(repositoryRoot(), 'dist/verbs-api/index.js');
    const lines = [
      `import { connectDaemon } from ${JSON.stringify(index)};`,
      'const provider = await connectDaemon();',
      "const context = await provider.open('roce0');",
      'const pd = await context.allocPD();',
      'await pd.allocMR(100, 0);',
      'await provider.close();',
    ];
    writeFileSync(script, lines.join('\n'));
    const { stderr, status } = await linted('--lint', [process.execPath, script]);
    expect(stderr).toMatch(/^ {2}mr-unused: the region of \d+ bytes .*\(.*\[\d+\] on roce0\)$/m);
    expect(status).toBe(0);
  });

  it('is not needed for the reason of a completion in error, which --explain prints', async () => {
    const device = ['--device', 'roce0=roce:127.0.0.1'];
    const words = ['run', '--explain', ...device, '--', program, 'rq-empty', '0'];
    const { stderr } = await runCommand(words);
    expect(stderr).toMatch(
      /^iwarpd: ibv_post_send IBV_WR_SEND wr_id 0 on QP \d+: IBV_WC_RNR_RETRY_EXC_ERR: .*had no receive posted, 1 retry of 0\.01 ms$/m,
    );
  });

  it('takes print and error', async () => {
    const { status, stderr } = await runCommand(['run', '--lint=loud', '--', 'true']);
    expect(status).toBe(2);
    expect(stderr).toMatch(/print.*error/);
  });
});
