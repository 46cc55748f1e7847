/** `--instance NAME`, in place of `--socket PATH`, for every command that has that. */
import { tmpdir } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { INSTANCE_NAME, instanceSocketPath } from '../../verbs-api/contract/ipc-admin.ts';

/** Gives the option to `program`'s commands; a command sees the socket that the name stands for. */
export function addInstanceOption(program: Command): void {
  for (const command of commandsOf(program)) {
    if (command.options.some(({ long }) => long === '--socket'))
      command.addOption(instanceOption());
  }
  program.hook('preAction', (_, command) => {
    const name: unknown = command.getOptionValue('instance');
    if (typeof name === 'string') command.setOptionValue('socket', socketOf(name));
  });
}

function instanceOption(): Option {
  return new Option('--instance <NAME>', 'the private daemon of this name, in place of --socket')
    .conflicts('socket')
    .argParser((text) => {
      if (INSTANCE_NAME.test(text)) return text;
      throw new InvalidArgumentError('It has to be 1 to 32 letters, digits, _, - or .');
    });
}

function socketOf(name: string): string {
  return instanceSocketPath(name, {
    environment: process.env,
    // Of a container's user there is often no more than the number.
    uid: process.geteuid?.() ?? 0,
    temporaryDirectory: tmpdir(),
  });
}

function commandsOf(command: Command): Command[] {
  return command.commands.flatMap((each) => [each, ...commandsOf(each)]);
}
