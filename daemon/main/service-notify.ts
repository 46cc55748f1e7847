/**
 * Tells a service manager how the daemon is, by the protocol of sd_notify(3): a datagram of lines
 * to the socket that `$NOTIFY_SOCKET` names. Without that variable nobody wants to know.
 */
import { sendUnixDatagram } from '../../native-bridge/libc/datagram.ts';
import { SystemCallError } from '../../native-bridge/libc/libc.ts';

/** What there is to tell. */
export type ServiceState = 'ready' | 'stopping';

const LINE: Readonly<Record<ServiceState, string>> = { ready: 'READY=1', stopping: 'STOPPING=1' };

/**
 * Tells the manager, if there is one; `status` is one line for people. Returns what prevented it, or
 * undefined: a manager that does not listen is no reason not to serve.
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
