/** Passes the reason why a detached daemon failed to the waiting command. */
import { jsonLine, type Output } from '../console/output.ts';

/** Set for the daemon, so that it prints the reason. */
export const DETACHED_VARIABLE = 'IWARPD_DETACHED';

/** In the daemon: prints why it exits. */
export function reportToStarter(
  failure: string,
  environment: NodeJS.ProcessEnv,
  output: Output,
): void {
  if (environment[DETACHED_VARIABLE] !== undefined) output.line(jsonLine({ failure }));
}

/** The reason in the daemon's output; undefined for a ready line, or less than a line. */
export function reportedFailure(text: string): string | undefined {
  const [line = '', rest] = text.split('\n', 2);
  if (rest === undefined) return undefined;
  return (JSON.parse(line) as { failure?: string }).failure;
}
