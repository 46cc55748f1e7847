/** Shared by the commands for a running daemon. */
import type { Option } from 'commander';
import type { Output } from '#daemon/console/output';

export interface ControlCommandContext {
  readonly output: Output;
  readonly signal: AbortSignal;
  /** The option that names the daemon's socket. */
  readonly socketOption: () => Option;
}
