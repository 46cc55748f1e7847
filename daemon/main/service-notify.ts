/**
 * Reports the daemon's state to a service manager with the protocol of sd_notify(3): a datagram of
 * lines to the socket named by `$NOTIFY_SOCKET`. Does nothing without that variable.
 */
import { sendUnixDatagram } from '#native-bridge/libc/datagram';
import { SystemCallError } from '#native-bridge/libc/libc';

export type ServiceState = 'ready' | 'stopping';

const LINE: Readonly<Record<ServiceState, string>> = { ready: 'READY=1', stopping: 'STOPPING=1' };

/**
 * Notifies the manager, if there is one; `status` is one line of text. Returns the error, if any: the
 * daemon serves even if the manager does not listen.
 */
export function notifyService(
  state: ServiceState,
  status: string,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string | undefined {
  const name = environment['NOTIFY_SOCKET'];
  if (name === undefined || name === '') return undefined;
  if (!/^[@/]./.test(name)) return `$NOTIFY_SOCKET is neither a path nor an abstract name: ${name}`;
  try {
    sendUnixDatagram(name, new TextEncoder().encode(`${LINE[state]}\nSTATUS=${status}\n`));
    return undefined;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    return `cannot notify $NOTIFY_SOCKET: ${error.message}`;
  }
}
