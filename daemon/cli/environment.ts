/** `iwarpd env`: the variables that `run` sets for its programs, for a shell. */
import { instanceHint } from '#verbs-api/client/daemon-place';
import { startCommand } from '#verbs-api/client/start-command';
import type { Output } from '../console/output.ts';
import { exportLines, shimVariables } from '../console/shim-environment.ts';
import { isRunning } from './run/used-daemon.ts';

/** Prints the variables that `run` sets, for a shell. */
export async function printEnvironment(socketPath: string, output: Output): Promise<void> {
  const variables = shimVariables(socketPath, process.env);
  // First: a shell that evaluates this must not be directed to an untrusted daemon.
  const running = await isRunning(socketPath);
  for (const line of exportLines(variables)) output.line(line);
  if (!running) {
    output.note(
      `iwarpd: no daemon at ${socketPath}${instanceHint(socketPath)} yet; start it with \`${startCommand(socketPath)}\``,
    );
  }
}
