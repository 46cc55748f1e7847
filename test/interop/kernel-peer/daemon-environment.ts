/** Sets programs of a guest up for a daemon there. */
import { runCommand } from '#test/support/cli-process';

/**
 * The exports that `iwarpd env` prints, as one line of a script. It runs on the host, although the
 * daemon is in the guest: starting Node takes an emulated processor seconds.
 */
export async function daemonEnvironment(socket: string): Promise<string> {
  const { stdout } = await runCommand(['env', '--socket', socket]);
  return stdout.trim().split('\n').join('; ').concat(';');
}
