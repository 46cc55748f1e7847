/**
 * The differences between providers of rdma-core: how a device presents itself in netlink, sysfs and
 * queries, and the private parts of commands, which follow the shared parts. The commands
 * themselves are a `CommandSet`.
 */
import type { DeviceAttributes } from '#contract/verbs/attributes';
import type { ErrnoCode } from '#contract/verbs/errors';
import type { HostAddress } from '#daemon/host/host-addresses';
import type { GidSource, GidTableEntry } from '#daemon/host/roce/gid-table';
import type { MR } from '#daemon/rnic/memory/memory-region';

/** Sizes of the private parts of a command, in bytes. */
export interface PrivateBytes {
  readonly request: number;
  readonly response: number;
}

/** Functions with a DataView write to it, at the offsets of `layouts.ts`. */
export interface Persona {
  /** `enum rdma_driver_id`: how rdma-core selects the provider. */
  readonly driverId: number;
  readonly abiVersion: number;
  /** `enum rdma_node_type`, as a number and as sysfs spells it. */
  readonly nodeType: { readonly number: number; readonly name: string };
  /** The name that netlink reports. */
  readonly protocol: string;
  readonly description: string;
  /** `enum ib_device_cap_flags`. */
  readonly deviceCapFlags: number;
  /** `enum ib_port_capability_mask_bits`. */
  readonly portCapFlags: number;
  /** Netlink names the network interface of a port. */
  readonly namesInterface: boolean;
  /** The GID table of a device on a host with these addresses. */
  readonly gids: (device: GidSource, host: readonly HostAddress[]) => readonly GidTableEntry[];
  /** Further sysfs files by path below the device's directory; `interfaceName` is that of the device. */
  readonly sysfsFiles: (interfaceName: string) => Readonly<Record<string, string>>;
  /** Overwrites the fields of QUERY_DEVICE in which personas differ. */
  readonly putDevice: (reply: DataView, attributes: DeviceAttributes) => void;
  /** Overwrites the fields of QUERY_PORT in which personas differ. */
  readonly putPort: (reply: DataView) => void;
  /** Errno of a doorbell below RTS. */
  readonly idleDoorbell: ErrnoCode;
  /** Private bytes by command number; a missing command has none. */
  readonly privateBytes: Readonly<Partial<Record<number, PrivateBytes>>>;
  /** The private part of GET_CONTEXT's reply. */
  readonly putContext: (own: DataView, deviceIndex: number) => void;
  /** Rights of a registration that the provider can use, bits of `Access`. */
  readonly keptAccess: number;
  /** The key of a registration, the low 8 bits of its STag; undefined lets the device choose. */
  readonly regionKey: (own: DataView) => number | undefined;
  /** The rkey that a registration returns. */
  readonly remoteKey: (mr: MR) => number;
  /** Errno of a deregistration while windows are bound. */
  readonly boundRegion: ErrnoCode;
  /** The private part of REG_MR's reply. */
  readonly putRegion: (own: DataView, stag: number) => void;
}
