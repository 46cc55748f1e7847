/** `--allow-daemon-uid UID`, on every command that talks to a daemon. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { ALLOW_DAEMON_VARIABLE, parseUid } from '#verbs-api/client/daemon-trust';
import { commandsOf } from './instance.ts';

/**
 * Adds the option to `program`'s commands. It sets the environment variable that every client in
 * this process reads and programs under `run` inherit.
 */
export function addDaemonTrustOption(program: Command): void {
  for (const command of commandsOf(program)) {
    const isClient = command.options.some(({ long }) => long === '--socket');
    if (isClient && command.name() !== 'start') command.addOption(trustOption());
  }
  program.hook('preAction', (_, command) => {
    const uid: unknown = command.getOptionValue('allowDaemonUid');
    if (typeof uid === 'number') process.env[ALLOW_DAEMON_VARIABLE] = String(uid);
  });
}

function trustOption(): Option {
  return new Option(
    '--allow-daemon-uid <UID>',
    "also use a daemon that runs as this user, which can then read and write the client's memory (default: $IWARPD_ALLOW_DAEMON_UID; else only your own daemons and root's)",
  ).argParser((text) => {
    const uid = parseUid(text);
    if (uid !== undefined) return uid;
    throw new InvalidArgumentError('must be a uid in decimal; `id -u NAME` prints it');
  });
}
