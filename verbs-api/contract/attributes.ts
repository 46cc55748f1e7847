/** Attributes and limits of devices, ports and objects. */
import type { QPState } from './enums.ts';

/** Where a device comes from. */
export type DeviceBackend = 'emulated' | 'native';

/** One entry of the device list. */
export interface DeviceInfo {
  readonly name: string;
  readonly backend: DeviceBackend;
  /** 64-bit GUID, as 16 hex digits. */
  readonly nodeGuid: string;
  /** Addresses that the device answers for; empty when it answers for every one of the host. */
  readonly addresses: readonly string[];
}

/** Limits and identity of a device (`struct ibv_device_attr`). */
export interface DeviceAttributes {
  readonly fwVer: string;
  readonly nodeGuid: string;
  readonly vendorId: number;
  readonly vendorPartId: number;
  readonly hwVer: number;
  readonly maxMrSize: number;
  readonly maxQp: number;
  readonly maxQpWr: number;
  readonly maxSge: number;
  readonly maxSgeRd: number;
  readonly maxInline: number;
  readonly maxCq: number;
  readonly maxCqe: number;
  readonly maxMr: number;
  readonly maxMw: number;
  readonly maxPd: number;
  /** Inbound reads and atomics per QP (IRD). */
  readonly maxQpRdAtom: number;
  /** Outbound reads and atomics per QP (ORD). */
  readonly maxQpInitRdAtom: number;
  readonly maxSrq: number;
  readonly maxSrqWr: number;
  readonly maxSrqSge: number;
  /** True when atomics of RFC 7306 are offered. */
  readonly atomics: boolean;
  /** True when Immediate Data of RFC 7306 is offered. */
  readonly immediateData: boolean;
  readonly physPortCnt: number;
}

/** State of a port (`struct ibv_port_attr`). */
export interface PortAttributes {
  readonly state: 'active' | 'down';
  readonly maxMtuBytes: number;
  readonly activeMtuBytes: number;
  readonly maxMessageBytes: number;
  readonly gid: string;
  readonly linkLayer: 'Ethernet';
}

/** Sizes of a queue pair (`struct ibv_qp_cap`). */
export interface QPCapabilities {
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  /** Octets. */
  readonly maxInlineData: number;
}

/** What `QP.query` tells (`struct ibv_qp_attr`, as far as iWARP has it). */
export interface QPAttributes {
  readonly state: QPState;
  readonly capabilities: QPCapabilities;
  readonly accessFlags: number;
  /** Negotiated outbound (ORD) and inbound (IRD) read depths; 0 until connected. */
  readonly maxRdAtomic: number;
  readonly maxDestRdAtomic: number;
  readonly sqSigAll: boolean;
}

/** Attributes of a shared receive queue (`struct ibv_srq_attr`). */
export interface SRQAttributes {
  readonly maxWr: number;
  readonly maxSge: number;
  /** The limit event fires when fewer entries are left; 0 is disarmed. */
  readonly srqLimit: number;
}
