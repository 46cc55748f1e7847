/** `iwarpd wait`: for scripts that start a daemon in the background. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { GREETING_TIMEOUT_MS } from '#contract/protocol/ipc-frames';
import { CommandFailure, failureCode, failureText, untilAborted } from '#daemon/console/failure';
import { type Output, printJson } from '#daemon/console/output';
import { socketPathOfThisProcess } from '#verbs-api/client/daemon-place';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { STATUS_FORMAT } from '../status.ts';

export interface WaitArguments {
  readonly socket?: string;
  readonly ready?: boolean;
  readonly timeout: number;
  readonly json?: boolean;
}

/** Short compared with the start of a daemon, long compared with a query. */
const INTERVAL_MS = 20;

/** Error codes while a daemon is starting; other errors are permanent. */
const NOT_YET: ReadonlySet<string> = new Set(['ENODEV', 'ECONNREFUSED', 'EIO', 'ETIMEDOUT']);

/** Resolves when the daemon is ready. CommandFailure on a timeout. */
export async function runWait(
  given: WaitArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const socketPath = given.socket ?? socketPathOfThisProcess();
  const deadline = performance.now() + given.timeout * 1000;
  for (;;) {
    const leftMs = Math.max(deadline - performance.now(), INTERVAL_MS);
    const found = await untilAborted(look(socketPath, leftMs), signal);
    if (typeof found !== 'string') {
      if (given.json === true) printJson(output, { format: STATUS_FORMAT, ...found });
      else output.line(readyText(found));
      return;
    }
    if (performance.now() >= deadline) {
      throw new CommandFailure(`not ready within ${given.timeout} s: ${found}`);
    }
    await sleep(INTERVAL_MS, undefined, { signal });
  }
}

/** The state of a ready daemon, or the reason why there is none. */
async function look(socketPath: string, leftMs: number): Promise<DaemonStatus | string> {
  try {
    const greetingTimeoutMs = Math.min(leftMs, GREETING_TIMEOUT_MS);
    const status = await queryDaemon('status', {}, { socketPath, greetingTimeoutMs });
    return status.ready ? status : `the daemon at ${socketPath} is starting or stopping`;
  } catch (error) {
    if (!NOT_YET.has(failureCode(error) ?? '')) throw error;
    return failureText(error);
  }
}

function readyText({ pid, socketPath, http }: DaemonStatus): string {
  const where = http === undefined ? '' : ` and ${http.url}`;
  return `ready: pid ${pid} at ${socketPath}${where}`;
}
