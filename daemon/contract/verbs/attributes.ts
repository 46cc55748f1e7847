/** Attributes and limits of devices, ports and objects. */

/** Kind of a device. */
export type DeviceBackend = 'emulated' | 'native';

/** The protocol that a device speaks (`enum ibv_transport_type`). */
export type DeviceTransport = 'iwarp' | 'roce';

/** Lower layers of an iWARP device: MPA over TCP, or SCTP. */
export type DeviceLowerLayer = 'tcp' | 'sctp';
/** All of them. */
export const LOWER_LAYERS: readonly DeviceLowerLayer[] = ['tcp', 'sctp'];

/** SCTP implementations: libusrsctp over UDP, or the kernel's, over IP or over UDP. */
export const SCTP_TRANSPORTS = ['usrsctp', 'kernel', 'kernel-udp'] as const;
/** One of `SCTP_TRANSPORTS`. */
export type SctpTransportKind = (typeof SCTP_TRANSPORTS)[number];

/** One entry of the device list. */
export interface DeviceInfo {
  /** Name of the device, for `Provider.open`. */
  readonly name: string;
  /** Emulated by iwarpd, or a real device over rdma-core. */
  readonly backend: DeviceBackend;
  /** The protocol: programs connect RoCE's queue pairs with `QP.modify`. Default: iwarp. */
  readonly transport?: DeviceTransport | undefined;
  /** Lower layer of an emulated iWARP device. Default: tcp. */
  readonly lowerLayer?: DeviceLowerLayer | undefined;
  /** 64-bit GUID, as 16 hex digits. */
  readonly nodeGuid: string;
  /** Addresses of the device; empty if it answers for every address of the host. */
  readonly addresses: readonly string[];
}

/** The protocol of a device in words; undefined for the usual one, iWARP over TCP. */
export function protocolText({ transport, lowerLayer }: DeviceInfo): string | undefined {
  if (transport === 'roce') return 'RoCE';
  if (lowerLayer === undefined || lowerLayer === 'tcp') return undefined;
  return `iWARP over ${lowerLayerText(lowerLayer)}`;
}

/** A lower layer in words: its acronym. */
export function lowerLayerText(lowerLayer: DeviceLowerLayer): string {
  return lowerLayer.toUpperCase();
}

/**
 * Limits and identity of a device (`struct ibv_device_attr`). Each `max…` field is the largest number
 * or size that the device supports.
 */
export interface DeviceAttributes {
  /** Firmware version; for an emulated device the version of iwarpd. */
  readonly fwVer: string;
  /** 64-bit GUID, as 16 hex digits. */
  readonly nodeGuid: string;
  /** Vendor id (an IEEE OUI). */
  readonly vendorId: number;
  /** The vendor's number of the part. */
  readonly vendorPartId: number;
  /** Hardware version; 0 for an emulated device. */
  readonly hwVer: number;
  /** Bytes of a memory region. */
  readonly maxMrSize: number;
  /** Queue pairs. */
  readonly maxQp: number;
  /** Work requests that a send queue, or a receive queue, can hold. */
  readonly maxQpWr: number;
  /** Scatter/gather elements of a work request. */
  readonly maxSge: number;
  /** Scatter/gather elements of an RDMA Read. */
  readonly maxSgeRd: number;
  /** Bytes that a send work request may carry inline. */
  readonly maxInline: number;
  /** Completion queues. */
  readonly maxCq: number;
  /** Entries of a completion queue. */
  readonly maxCqe: number;
  /** Memory regions. */
  readonly maxMr: number;
  /** Memory windows. */
  readonly maxMw: number;
  /** Protection domains. */
  readonly maxPd: number;
  /** Inbound reads and atomics per QP (IRD). */
  readonly maxQpRdAtom: number;
  /** Outbound reads and atomics per QP (ORD). */
  readonly maxQpInitRdAtom: number;
  /** Shared receive queues. */
  readonly maxSrq: number;
  /** Receives that a shared receive queue holds. */
  readonly maxSrqWr: number;
  /** Scatter/gather elements of a receive on a shared receive queue. */
  readonly maxSrqSge: number;
  /** True if the device supports atomics. */
  readonly atomics: boolean;
  /** True if the device supports immediate data. */
  readonly immediateData: boolean;
  /** Ports; always 1. */
  readonly physPortCnt: number;
}

/** State of a port (`struct ibv_port_attr`). */
export interface PortAttributes {
  /** Whether connections can be established. */
  readonly state: 'active' | 'down';
  /** Largest MTU, in bytes. */
  readonly maxMtuBytes: number;
  /** MTU in use, in bytes, as `ibv_devinfo` prints it. */
  readonly activeMtuBytes: number;
  /** Bytes of the largest message. */
  readonly maxMessageBytes: number;
  /** GID of the port, as eight groups of hex digits. */
  readonly gid: string;
  /** Always Ethernet. */
  readonly linkLayer: 'Ethernet';
}

/** Sizes of a queue pair (`struct ibv_qp_cap`). */
export interface QPCapabilities {
  /** Send work requests that the queue holds. */
  readonly maxSendWr: number;
  /** Receives that the queue holds. */
  readonly maxRecvWr: number;
  /** Scatter/gather elements of a send work request. */
  readonly maxSendSge: number;
  /** Scatter/gather elements of a receive. */
  readonly maxRecvSge: number;
  /** Bytes that a send work request may carry inline. */
  readonly maxInlineData: number;
}

/** An entry of a port's GID table (`struct ibv_gid_entry`). */
export interface GidEntry {
  /** GID as eight groups of hex digits; an IPv4 address is mapped (`::ffff:a.b.c.d`). */
  readonly gid: string;
  /** Index in the table, for `GlobalRoute.sgidIndex`. */
  readonly gidIndex: number;
  /** Port; always 1. */
  readonly portNum: number;
  /** Always RoCE version 2. */
  readonly gidType: 'rocev2';
}

/** Route of packets by GID (`struct ibv_global_route`). */
export interface GlobalRoute {
  /** GID of the destination, as eight groups of hex digits; of a peer or of a multicast group. */
  readonly dgid: string;
  /** Index of the own GID in the table, of the same address family as `dgid`. */
  readonly sgidIndex: number;
  /** 20 bits. Default 0. */
  readonly flowLabel?: number | undefined;
  /** Routers that packets may pass. Default 64. */
  readonly hopLimit?: number | undefined;
  /** Traffic class (type of service). Default 0. */
  readonly trafficClass?: number | undefined;
}

/** An address vector (`struct ibv_ah_attr`): where packets go. */
export interface AHAttributes {
  /** The route. Every RoCE address has one. */
  readonly grh: GlobalRoute;
  /** Service level. Default 0. */
  readonly sl?: number | undefined;
  /** Port that packets leave by. Default 1. */
  readonly portNum?: number | undefined;
}

/** Attributes of a shared receive queue (`struct ibv_srq_attr`). */
export interface SRQAttributes {
  /** Receives that the queue holds. */
  readonly maxWr: number;
  /** Scatter/gather elements of a receive. */
  readonly maxSge: number;
  /** The limit event fires when fewer entries are left; 0 is disarmed. */
  readonly srqLimit: number;
}
