/** Reports the events of a host to logs, traces and captures. Nothing is logged here. */
import type { SocketAddress } from '#contract/verbs/provider';
import type { CaptureTap } from '../capture/capture-tap.ts';

/** A notice. `debug` for steps of a connection, `warn` for errors of peers or programs. */
export interface HostNotice {
  /** Severity. */
  readonly level: 'debug' | 'info' | 'warn';
  /** Stable word: 'listening', 'connection', 'refused', 'socket', 'device', 'fault'. */
  readonly kind: string;
  /** Name of the device, if it is about one. */
  readonly device: string | undefined;
  /** The queue pair that it is about. */
  readonly qpn?: number | undefined;
  /** The peer, if it is about a connection. */
  readonly remote: SocketAddress | undefined;
  /** One readable line. */
  readonly text: string;
}

/** Watches a host. Must not throw, and must not call the host. */
export interface HostObserver {
  /** Something happened. */
  notice?(notice: HostNotice): void;
  /** Sees the bytes of every connection. */
  readonly tap?: CaptureTap;
}
