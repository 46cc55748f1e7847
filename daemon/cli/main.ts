#!/usr/bin/env node
/** Entry of the `iwarpd` command: runs it, and turns its failure into one line and a status. */
import { CommandFailure, failureText, STATUS_FAILED, STATUS_INTERRUPTED } from './failure.ts';
import { endOnClosedPipe, STANDARD_OUTPUT } from './output.ts';
import { runCommandLine } from './program.ts';

const interruption = new AbortController();

function interrupt(): void {
  // Whoever asks twice does not want to wait for the connection to close.
  if (interruption.signal.aborted) process.exit(STATUS_INTERRUPTED);
  interruption.abort(new Error('interrupted'));
}

async function main(): Promise<void> {
  endOnClosedPipe();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, interrupt);
  // A command that was forked with a channel ends with the process that holds the other end.
  process.on('disconnect', interrupt);
  process.channel?.unref();
  try {
    await runCommandLine(process.argv.slice(2), {
      output: STANDARD_OUTPUT,
      signal: interruption.signal,
    });
  } catch (error) {
    process.exitCode = statusOf(error);
  }
}

function statusOf(error: unknown): number {
  if (interruption.signal.aborted) return STATUS_INTERRUPTED;
  STANDARD_OUTPUT.note(`iwarpd: ${failureText(error)}`);
  if (process.env['IWARPD_DEBUG'] !== undefined && error instanceof Error) {
    STANDARD_OUTPUT.note(error.stack ?? '');
  }
  return error instanceof CommandFailure ? error.exitStatus : STATUS_FAILED;
}

await main();
