/** The commands `completion` and `manual`, whose output is for shells and man(1). */
import { resolve } from 'node:path';
import { Argument, type Command } from 'commander';
import type { Output } from '#daemon/console/output';
import { SHELLS, type Shell } from './shells.ts';

/** Adds both; `version` is the version of the package. */
export function addShell(program: Command, output: Output, version: string): void {
  program
    .command('completion')
    .description('print a completion script: source <(iwarpd completion bash)')
    .addArgument(new Argument('<SHELL>', 'the shell that reads it').choices(SHELLS))
    .action(async (shell: Shell) => {
      const { commandFacts } = await import('./command-facts.ts');
      const { completionScript } = await import('./completion.ts');
      output.line(completionScript(shell, commandFacts(program)).trimEnd());
    });
  program
    .command('manual')
    .description('print the manual page: iwarpd manual | man -l -')
    .option('--systemd-unit', 'print a systemd user unit for this installation instead')
    .option('--config-schema', 'print the JSON Schema of a configuration file instead')
    .action(async (given: { systemdUnit?: boolean; configSchema?: boolean }) => {
      if (given.configSchema === true) {
        const { configSchema } = await import('#daemon/main/config');
        output.line(JSON.stringify(configSchema(), undefined, 2));
        return;
      }
      if (given.systemdUnit === true) {
        output.line(systemdUnit(process.execPath, resolve(process.argv[1] ?? '')).trimEnd());
        return;
      }
      const { commandFacts } = await import('./command-facts.ts');
      const { manualPage } = await import('./manual-page.ts');
      output.line(manualPage(commandFacts(program), version).trimEnd());
    });
}

/** A user unit that runs this installation; `node` and `script` are the absolute paths that it starts. */
export function systemdUnit(node: string, script: string): string {
  return `[Unit]
Description=iwarpd, emulated RoCE and iWARP devices
Documentation=man:iwarpd(1)

[Service]
Type=notify
ExecStart=${quoted(node)} ${quoted(script)} start
Restart=on-failure
LimitNOFILE=65536

[Install]
WantedBy=default.target
`;
}

/** One argument of ExecStart, see systemd.service(5): specifiers and variables stay as they are. */
function quoted(path: string): string {
  const escaped = path.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  return `"${escaped.replaceAll('%', '%%').replaceAll('$', '$$$$')}"`;
}
