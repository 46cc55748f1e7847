/** The command that starts a missing daemon, for error messages. */
import { tmpdir } from 'node:os';
import { basename } from 'node:path';
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
  if (path === defaultSocketPath(place)) return 'iwarpd start';
  const name = basename(path, '.sock');
  const isInstance = INSTANCE_NAME.test(name) && path === instanceSocketPath(name, place);
  return `iwarpd start ${isInstance ? `--instance ${name}` : `--socket ${path}`}`;
}
