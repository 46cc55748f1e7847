/** `--instance NAME`: short for `--socket PATH`, on every command that accepts `--socket`. */
import { tmpdir } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { INSTANCE_NAME, instanceSocketPath } from '#contract/protocol/ipc-admin';

/** Adds the option to `program`'s commands, which then get the socket of the instance. */
export function addInstanceOption(program: Command): void {
  for (const command of commandsOf(program)) {
    if (command.options.some(({ long }) => long === '--socket'))
      command.addOption(instanceOption());
  }
  program.hook('preAction', (_, command) => {
    const name: unknown = command.getOptionValue('instance');
    if (typeof name === 'string') command.setOptionValue('socket', instanceSocket(name));
  });
}

function instanceOption(): Option {
  return new Option('--instance <NAME>', 'use the private daemon NAME; short for --socket')
    .conflicts('socket')
    .argParser(parseInstance);
}

/** Parses the name of an instance. Throws `InvalidArgumentError`. */
export function parseInstance(text: string): string {
  if (INSTANCE_NAME.test(text)) return text;
  throw new InvalidArgumentError('must be 1 to 32 letters, digits, or any of . _ -');
}

export function instanceSocket(name: string): string {
  return instanceSocketPath(name, {
    environment: process.env,
    // In a container, a user often has a number but no name.
    uid: process.geteuid?.() ?? 0,
    temporaryDirectory: tmpdir(),
  });
}

/** All commands below `command`. */
export function commandsOf(command: Command): Command[] {
  return command.commands.flatMap((each) => [each, ...commandsOf(each)]);
}
