/** Runs every console block of the documents, and compares its output. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import {
  commandsOf,
  type DocCommand,
  type DocExample,
  docExamples,
  isAsShown,
} from '../support/doc-examples.ts';
import { describeWith, type Need, repositoryRoot } from '../support/prerequisites.ts';
import { DocConsole, type TypedCommand } from './doc-console.ts';

const CONSOLE = docExamples(repositoryRoot()).filter(({ language }) => language === 'console');
const RUN = CONSOLE.filter(({ notRun }) => notRun === undefined);
const NEEDS = [...new Set(RUN.map(({ needs }) => needs.join(' ')))];

let shell: DocConsole | undefined;

afterEach(async () => {
  await shell?.close();
  shell = undefined;
});

/** Documented lines that are missing, and output lines that are undocumented. */
function differences(commands: readonly DocCommand[], typed: readonly TypedCommand[]): string[] {
  const background = typed
    .filter(({ status }) => status === undefined)
    .flatMap(({ lines }) => lines);
  return commands.flatMap(({ command, expected }, index) => {
    const { lines, status } = typed[index] ?? { lines: [], status: undefined };
    const missing = expected.filter(
      (shown) =>
        shown !== '…' &&
        shown !== '' &&
        ![...lines, ...background].some((line) => isAsShown(shown, line)),
    );
    const elided = expected.includes('…') || (status === undefined && expected.length === 0);
    const surplus = elided
      ? []
      : lines.filter((line) => line !== '' && !expected.some((shown) => isAsShown(shown, line)));
    const failed = (status ?? 0) !== 0 && !expected.some((line) => line.startsWith('iwarpd: '));
    return [
      ...missing.map((line) => `${command}: does not print: ${line}`),
      ...surplus.map((line) => `${command}: prints, unseen in the document: ${line}`),
      ...(failed ? [`${command}: fails with status ${status}`] : []),
    ];
  });
}

async function check({ text, given }: DocExample): Promise<void> {
  const commands = commandsOf(text);
  shell = new DocConsole();
  await shell.type(given, commands);
  const typed = await shell.settle(commands, (now) => differences(commands, now).length === 0);
  expect(differences(commands, typed), shell.said).toEqual([]);
}

for (const needs of NEEDS) {
  const names = needs.split(' ').filter((name): name is Need => name !== '');
  describeWith(names, `console blocks${needs === '' ? '' : ` with ${needs}`}`, () => {
    it.each(RUN.filter((example) => example.needs.join(' ') === needs))('$place', check);
  });
}

/** README's commands for two machines, the server's first, with their addresses. */
function betweenTwoMachines(here: string, there: string): string[] {
  const examples = docExamples(repositoryRoot()).filter(
    ({ place, text }) => place.startsWith('README.md') && /\broce:T?HERE\b/.test(text),
  );
  // Their first lines: the second is for a machine whose kernel has rxe.
  return examples
    .map(({ text }) => text.split('\n')[0] ?? '')
    .map((line) => line.replaceAll(/\bHERE\b/g, here).replaceAll(/\bTHERE\b/g, there));
}

describeWith(['perftest'], 'commands between two machines', () => {
  it('carry data between two addresses of this one', async () => {
    const [server = '', client = '', ...more] = betweenTwoMachines('127.0.0.2', '127.0.0.3');
    expect(more).toEqual([]);
    const lines = [
      `${server} &`,
      'until ss -Hltn sport = :18515 | grep -q .; do sleep 0.1; done',
      client,
    ];
    shell = new DocConsole();
    const commands = lines.map((command) => ({ command, expected: [] }));
    await shell.type([], commands);
    const moved = /^ *65536 +1000 +[\d.]+ +[\d.]+/m;
    const shown = ({ lines }: TypedCommand) => moved.test(lines.join('\n'));
    const typed = await shell.settle(commands, (now) => now.filter(shown).length === 2);
    expect(typed.map(({ lines }) => lines.join('\n'))).toEqual([
      expect.stringMatching(moved),
      '',
      expect.stringMatching(moved),
    ]);
    expect(typed[2]?.status).toBe(0);
  });
});

describe('console blocks that are not run', () => {
  it('are those of machines with another kernel', () => {
    const reasons = CONSOLE.flatMap(({ notRun }) => (notRun === undefined ? [] : [notRun]));
    expect(reasons).toHaveLength(5);
    for (const reason of reasons) {
      expect(reason).toMatch(
        /kernel (?:that )?has (?:siw|rxe); test\/interop\/\S+ (?:has one$|types these commands)/,
      );
      const [, suite = ''] = /(test\/interop\/\S+)/.exec(reason) ?? [];
      expect(existsSync(join(repositoryRoot(), suite)), suite).toBe(true);
    }
  });
});

describe('what a block shows', () => {
  it.each([
    ['3 clients, pid 3514', '12 clients, pid 7', true],
    ['STag 0x90978334', 'STag 0x0000000a', true],
    ['left    emulated', 'left  emulated', true],
    ['MPA Request …', 'MPA Request revision 2', true],
    ['3 clients', '3 clients left', false],
    ['ready', 'not ready', false],
    ['a.b', 'axb', false],
  ])('%s shows %s: %s', (shown, printed, alike) => {
    expect(isAsShown(shown, printed)).toBe(alike);
  });
});
