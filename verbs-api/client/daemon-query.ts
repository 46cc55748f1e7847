/** One operation of a running daemon's control plane. */
import type {
  ControlOperationName,
  ControlReply,
  ControlRequest,
} from '#contract/protocol/control';
import { Role } from '#contract/protocol/ipc-frames';
import type { IpcValue } from '#contract/protocol/ipc-value';
import { DaemonCalls } from './daemon-calls.ts';
import { DaemonConnection } from './daemon-connection.ts';
import { type DaemonOptions, placeOf } from './daemon-place.ts';
import type { DaemonPlace } from './daemon-trust.ts';

/**
 * Executes an operation of a running daemon's control plane. Rejects like `DaemonChannel.connect`, and
 * with the operation's error.
 */
export async function queryDaemon<N extends ControlOperationName>(
  name: N,
  request: ControlRequest<N>,
  options: DaemonOptions & Pick<DaemonPlace, 'greetingTimeoutMs'> = {},
): Promise<ControlReply<N>> {
  const { greetingTimeoutMs } = options;
  const place = { ...placeOf(options), greetingTimeoutMs };
  const calls = new DaemonCalls(await DaemonConnection.open(place, Role.admin));
  try {
    const reply = await calls.call(name, request as unknown as IpcValue);
    return reply as unknown as ControlReply<N>;
  } finally {
    await calls.close();
  }
}
