/** The daemon's status, and the path of its socket. */
import type { DeviceInfo, PortAttributes } from '../verbs/attributes.ts';
import type { MemoryTier, SocketAddress } from '../verbs/provider.ts';

/** State of a running daemon. */
export interface DaemonStatus {
  /** Version of the package that the daemon runs. */
  readonly version: string;
  /** Process id of the daemon. */
  readonly pid: number;
  /** Seconds since the daemon started. */
  readonly uptimeSeconds: number;
  /** False while the daemon starts or stops. */
  readonly ready: boolean;
  /** Path of the daemon's socket. */
  readonly socketPath: string;
  /** Its HTTP server; undefined if it has none. */
  readonly http?: HttpReady;
  /** The CRC32C implementation in use and the reason for the choice, in a few words. */
  readonly crcEngine: string;
  /** Whether its devices reach other hosts and daemons, or each other only. */
  readonly network: NetworkReach;
  /** Path of connections between its own iWARP devices and queue pairs. */
  readonly loopback: Loopback;
  /** Memory tiers that clients may get, best first. */
  readonly memoryTiers: readonly MemoryTier[];
  /** Devices of the daemon, in the order of their configuration. */
  readonly devices: readonly DeviceStatus[];
  /** Clients that are connected. */
  readonly clients: readonly ClientStatus[];
  /**
   * Addresses of rdma_cm listeners that accept on RoCE devices only, because another program has the TCP
   * port. Undefined if there are none.
   */
  readonly roceAlone?: readonly SocketAddress[];
  /** Number of injected faults. */
  readonly faults: number;
  /** Number of refusals since the daemon started or was reset; a repeated one counts each time. */
  readonly refusals: number;
  /** Limits in use, and what the daemon did to keep running. */
  readonly health: DaemonHealth;
}

/** Paths of connections within one daemon: through its memory, or as TCP packets on loopback. */
export const LOOPBACKS = ['memory', 'tcp'] as const;
/** `memory` or `tcp`: one of `LOOPBACKS`. */
export type Loopback = (typeof LOOPBACKS)[number];

/**
 * How far devices reach: other hosts and daemons by sockets of this machine, or the devices of their own
 * daemon only, without a socket.
 */
export const NETWORKS = ['host', 'isolated'] as const;
/** `host` or `isolated`: one of `NETWORKS`. */
export type NetworkReach = (typeof NETWORKS)[number];

/** How close the daemon is to its limits, and what it did to keep running. */
export interface DaemonHealth {
  /**
   * Use and maximum of what all clients share: 'descriptors' (of the whole process), 'mappings',
   * 'sharedBytes', 'objects' and the others in `daemon/LIMITS.md`.
   */
  readonly limits: Readonly<Record<string, SharedLimitUse>>;
  /** Log lines dropped because the reader was too slow. */
  readonly logLinesDropped: number;
  /**
   * Longest turn of the daemon's event loop since its start, in seconds; up to 0.01 too low. Other work
   * waited for that long.
   */
  readonly longestTurnSeconds: number;
  /** The latest processes that the daemon killed because their memory did not respond. */
  readonly ended: readonly EndedProcess[];
}

/** Use of a limit of the whole daemon. */
export interface SharedLimitUse {
  /** Use by all users, in the unit of the limit: bytes, or a number. */
  readonly used: number;
  /** The most that all users together may hold. */
  readonly limit: number;
  /** The user, other than the daemon's owner, who is closest to a refusal. Absent if there is none. */
  readonly user?: {
    readonly uid: number;
    readonly used: number;
    /** The most that the user may hold at present. */
    readonly share: number;
  };
}

/** A process that the daemon killed. */
export interface EndedProcess {
  /** Process id. */
  readonly pid: number;
  /** Name of the program; '' when the daemon could not see it. */
  readonly program: string;
  /** When, as ISO 8601. */
  readonly at: string;
}

/** Address of the daemon's HTTP server. */
export interface HttpReady {
  /** `http://HOST:PORT` with the chosen port. */
  readonly url: string;
  /** Address that it listens at. */
  readonly address: string;
  /** TCP port; the one that the system chose if port 0 was given. */
  readonly port: number;
  /** True when requests need a bearer token. */
  readonly tokenNeeded: boolean;
  /** The file with the token, readable by the daemon's user only; undefined if there is none. */
  readonly tokenFile?: string;
}

/** One device of the daemon. */
export interface DeviceStatus {
  /** Name, backend, GUID and addresses of the device. */
  readonly device: DeviceInfo;
  /** State of its only port; also 'down' if the device does not report it. */
  readonly portState: PortAttributes['state'];
  /** Counters by name; they only increase. */
  readonly counters: Readonly<Record<string, number>>;
  /** On RoCE: counters of its port, with the names of the kernel's rxe. */
  readonly hwCounters?: Readonly<Record<string, number>>;
  /** On RoCE: counters of packets from other hosts that were dropped or unusual. */
  readonly linkCounters?: Readonly<Record<string, number>>;
}

/** One client of the daemon. */
export interface ClientStatus {
  /** Number of the client, from 1; a daemon never reuses numbers. */
  readonly id: number;
  /** Process id of the client. */
  readonly pid: number;
  /** User id of the client. */
  readonly uid: number;
  /** Name of the program; '' when the daemon cannot see it. */
  readonly program: string;
  /** Seconds since the client connected. */
  readonly connectedSeconds: number;
  /** Resources that the client holds. */
  readonly usage: ClientUsage;
}

/** Resources of a client. */
export interface ClientUsage {
  /** Objects by kind: 'context', 'pd', 'mr', 'mw', 'cq', 'srq', 'qp', 'id', 'channel', 'buffer'. */
  readonly objects: Readonly<Record<string, number>>;
  /** Bytes of shared memory. */
  readonly sharedBytes: number;
  /** Bytes of its own memory that it registered. */
  readonly pinnedBytes: number;
  /** Memory regions by tier. */
  readonly tiers: Readonly<Record<string, number>>;
  /** Why the regions of a tier are in it. */
  readonly tierReasons: Readonly<Record<string, string>>;
}

/** Determines a user's directory for sockets. */
interface SocketPlace {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  readonly temporaryDirectory: string;
}

/**
 * Default path of the socket: `$IWARPD_SOCKET`, the runtime directory, or a per-user temporary one.
 */
export function defaultSocketPath(place: SocketPlace): string {
  const named = place.environment['IWARPD_SOCKET'];
  if (named !== undefined && named !== '') return named;
  return `${socketDirectory(place)}/iwarpd.sock`;
}

/** Path at which a daemon stores its generated HTTP token: next to its socket. */
export function httpTokenPath(socketPath: string): string {
  return `${socketPath}.http-token`;
}

/** Valid names of private instances: the name becomes part of a file name. */
export const INSTANCE_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/;

/**
 * Path of a private instance's socket: next to the default one, regardless of `$IWARPD_SOCKET`.
 * `name` matches `INSTANCE_NAME`.
 */
export function instanceSocketPath(name: string, place: SocketPlace): string {
  return `${socketDirectory(place)}/${name}.sock`;
}

/** The user's directory for sockets: of the default daemon and of instances. */
export function socketDirectory({ environment, uid, temporaryDirectory }: SocketPlace): string {
  const runtime = environment['XDG_RUNTIME_DIR'];
  if (runtime !== undefined && runtime !== '') return `${runtime}/iwarpd`;
  return `${temporaryDirectory}/iwarpd-${uid}`;
}
