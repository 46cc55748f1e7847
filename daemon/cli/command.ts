/** Runs the `iwarpd` command; reports a failure as one line and an exit status. */
import {
  CommandFailure,
  failureText,
  Interruption,
  STATUS_FAILED,
  STATUS_INTERRUPTED,
  WriteFailure,
} from '../console/failure.ts';
import { endOnClosedPipe, STANDARD_OUTPUT } from '../console/output.ts';
import { reportToStarter } from './detached-failure.ts';
import { endWithNpm } from './npm-parent.ts';

const interruption = new AbortController();

function interrupt(by?: NodeJS.Signals): void {
  // A second interruption exits at once, without waiting for the connection to close.
  if (interruption.signal.aborted) process.exit(STATUS_INTERRUPTED);
  interruption.abort(new Interruption(by));
}

async function main(): Promise<void> {
  // A command that cleans up does so first.
  endOnClosedPipe(() => {
    if (!interruption.signal.aborted) interrupt('SIGPIPE');
  });
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, interrupt);
  // A command forked with a channel ends with the process at the other end.
  process.on('disconnect', () => interrupt());
  process.channel?.unref();
  await endWithNpm(process.env);
  try {
    // Loaded after the signal handlers are set, since loading takes most of a command's start.
    const { runCommandLine } = await import('./program.ts');
    await runCommandLine(process.argv.slice(2), {
      output: STANDARD_OUTPUT,
      signal: interruption.signal,
    });
  } catch (error) {
    const status = statusOf(error);
    // An abandoned request that waits for a reply would keep the process alive.
    if (interruption.signal.aborted) process.exit(status);
    process.exitCode = status;
  }
}

function statusOf(error: unknown): number {
  const { reason } = interruption.signal;
  if (reason instanceof Interruption && reason.by === 'SIGPIPE') return 0;
  if (interruption.signal.aborted && !(error instanceof WriteFailure)) return STATUS_INTERRUPTED;
  reportToStarter(failureText(error), process.env, STANDARD_OUTPUT);
  STANDARD_OUTPUT.note(`iwarpd: ${failureText(error)}`);
  if (process.env['IWARPD_DEBUG'] !== undefined && error instanceof Error) {
    STANDARD_OUTPUT.note(error.stack ?? '');
  }
  return error instanceof CommandFailure ? error.exitStatus : STATUS_FAILED;
}

await main();
