/** How a host tells what happens, for logs, traces and captures. Nothing is logged here. */
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import type { CaptureTap } from '../capture/capture-tap.ts';

/** Something that happened. `debug` is every step of a connection, `warn` what somebody did wrong. */
export interface HostNotice {
  readonly level: 'debug' | 'info' | 'warn';
  /** Stable word: 'listening', 'connection', 'refused', 'stream-ended', 'socket', 'device', 'fault'. */
  readonly kind: string;
  readonly device: string | undefined;
  readonly remote: SocketAddress | undefined;
  /** One line for people. */
  readonly text: string;
}

/** Watches a host. Must not throw, and must not call the host. */
export interface HostObserver {
  notice?(notice: HostNotice): void;
  /** Sees the octets of every connection. */
  readonly tap?: CaptureTap;
}
