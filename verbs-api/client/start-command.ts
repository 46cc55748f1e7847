/** The command that starts a missing daemon, for error messages. */
import { tmpdir } from 'node:os';
import { basename, dirname } from 'node:path';
import {
  defaultSocketPath,
  INSTANCE_NAME,
  instanceSocketPath,
} from '../contract/protocol/ipc-admin.ts';

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
 * How a user calls the command whose script this process runs: `iwarpd` after a global install, by a
 * link in the PATH; `npx iwarpd` in a clone and in a project, by a link in `node_modules/.bin`.
 */
export function commandOf(script = 'iwarpd'): string {
  const isGlobal = basename(script) === 'iwarpd' && basename(dirname(script)) !== '.bin';
  return isGlobal ? 'iwarpd' : 'npx iwarpd';
}
