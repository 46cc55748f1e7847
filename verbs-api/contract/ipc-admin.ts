/** What the daemon tells about itself, and the socket's place. */
import type { DeviceInfo, PortAttributes } from './attributes.ts';
import type { MemoryTier } from './provider.ts';

/** State of a running daemon. */
export interface DaemonStatus {
  readonly version: string;
  readonly pid: number;
  readonly uptimeSeconds: number;
  /** Everything that was asked for is there; false while it starts or stops. */
  readonly ready: boolean;
  readonly socketPath: string;
  /** Where it answers over HTTP; undefined when it does not. */
  readonly http?: HttpReady;
  /** The CRC32C implementation in use and, in a few words, why. */
  readonly crcEngine: string;
  /** Memory tiers that clients may get, best first. */
  readonly memoryTiers: readonly MemoryTier[];
  readonly devices: readonly DeviceStatus[];
  readonly clients: readonly ClientStatus[];
  /** Faults that were asked for and are there. */
  readonly faults: number;
}

/** Where a daemon answers over HTTP. */
export interface HttpReady {
  /** `http://HOST:PORT` with the chosen port. */
  readonly url: string;
  readonly address: string;
  readonly port: number;
  readonly tokenNeeded: boolean;
}

/** One device of the daemon. */
export interface DeviceStatus {
  readonly device: DeviceInfo;
  /** Of its one port; 'down' also where the device does not tell. */
  readonly portState: PortAttributes['state'];
  /** Counters by name; they only grow. */
  readonly counters: Readonly<Record<string, number>>;
}

/** One client of the daemon. */
export interface ClientStatus {
  /** Number of the client, from 1; never given twice by one daemon. */
  readonly id: number;
  readonly pid: number;
  readonly uid: number;
  /** Name of the program; '' when the daemon cannot see it. */
  readonly program: string;
  readonly connectedSeconds: number;
  readonly usage: ClientUsage;
}

/** What a client holds. */
export interface ClientUsage {
  /** Objects by kind: 'context', 'pd', 'mr', 'mw', 'cq', 'srq', 'qp', 'id', 'channel', 'buffer'. */
  readonly objects: Readonly<Record<string, number>>;
  /** Octets of shared memory. */
  readonly sharedBytes: number;
  /** Octets of registered memory of its own. */
  readonly pinnedBytes: number;
  /** Memory regions by tier. */
  readonly tiers: Readonly<Record<string, number>>;
  /** Why the regions of a tier are in it. */
  readonly tierReasons: Readonly<Record<string, string>>;
}

/** What identifies a user's place for sockets. */
export interface SocketPlace {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  readonly temporaryDirectory: string;
}

/** Where the socket is: `$IWARPD_SOCKET`, the runtime directory, or a per-user temporary one. */
export function defaultSocketPath(place: SocketPlace): string {
  const named = place.environment['IWARPD_SOCKET'];
  if (named !== undefined && named !== '') return named;
  return `${socketDirectory(place)}/iwarpd.sock`;
}

/** What a private instance may be called: it becomes the name of a file. */
export const INSTANCE_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/;

/**
 * Where the socket of a private instance is: beside the default one, whatever `$IWARPD_SOCKET` says.
 * `name` matches `INSTANCE_NAME`.
 */
export function instanceSocketPath(name: string, place: SocketPlace): string {
  return `${socketDirectory(place)}/${name}.sock`;
}

/** The user's directory for sockets. */
function socketDirectory({ environment, uid, temporaryDirectory }: SocketPlace): string {
  const runtime = environment['XDG_RUNTIME_DIR'];
  if (runtime !== undefined && runtime !== '') return `${runtime}/iwarpd`;
  return `${temporaryDirectory}/iwarpd-${uid}`;
}
