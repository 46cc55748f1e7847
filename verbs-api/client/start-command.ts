/** The command that starts a missing daemon, for error messages. */
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname } from 'node:path';
import { defaultSocketPath, INSTANCE_NAME, instanceSocketPath } from '#contract/protocol/ipc-admin';

/** The command that starts a daemon at this path. */
export function startCommand(path: string): string {
  const place = {
    environment: process.env,
    uid: process.geteuid?.() ?? 0,
    temporaryDirectory: tmpdir(),
  };
  const command = `${commandOf(process.argv[1])} start`;
  if (path === defaultSocketPath(place)) return command;
  const name = basename(path, '.sock');
  const isInstance = INSTANCE_NAME.test(name) && path === instanceSocketPath(name, place);
  return `${command} ${isInstance ? `--instance ${name}` : `--socket ${path}`}`;
}

/**
 * The command with which a user runs this process's script: `iwarpd` if the PATH has a link to it, as
 * after a global install; `npx iwarpd` for a link in `node_modules/.bin`, as in a clone or a project. npm
 * adds that folder to the PATH of its scripts, not to the user's.
 */
export function commandOf(
  script = 'iwarpd',
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string {
  const folder = dirname(script);
  if (basename(script) !== 'iwarpd') return 'npx iwarpd';
  if (basename(folder) !== '.bin') return 'iwarpd';
  const belowNpm = environment['npm_lifecycle_script'] !== undefined;
  const inPath = (environment['PATH'] ?? '').split(delimiter).includes(folder);
  return inPath && !belowNpm ? 'iwarpd' : 'npx iwarpd';
}
