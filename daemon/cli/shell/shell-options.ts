/** The commands `completion` and `manual`, whose output is for shells and man(1). */
import { resolve } from 'node:path';
import { Argument, type Command } from 'commander';
import type { Output } from '../../console/output.ts';
import { commandFacts } from './command-facts.ts';
import { completionScript, SHELLS, type Shell } from './completion.ts';
import { manualPage } from './manual-page.ts';
import { systemdUnit } from './systemd-unit.ts';

/** Adds both; `version` is the version of the package. */
export function addShell(program: Command, output: Output, version: string): void {
  program
    .command('completion')
    .description('print a completion script: source <(iwarpd completion bash)')
    .addArgument(new Argument('<SHELL>', 'the shell that reads it').choices(SHELLS))
    .action((shell: Shell) => {
      output.line(completionScript(shell, commandFacts(program)).trimEnd());
    });
  program
    .command('manual')
    .description('print the manual page: iwarpd manual | man -l -')
    .option('--systemd-unit', 'print a systemd user unit for this installation instead')
    .action((given: { systemdUnit?: boolean }) => {
      if (given.systemdUnit === true) {
        output.line(systemdUnit(process.execPath, resolve(process.argv[1] ?? '')).trimEnd());
        return;
      }
      output.line(manualPage(commandFacts(program), version).trimEnd());
    });
}
