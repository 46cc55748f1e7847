/** A host's devices as kernel devices: indices, character devices, GUIDs. */
import type { DeviceTransport, PortAttributes } from '#contract/verbs/attributes';
import { SHOWN_DEVICES_MAX } from '#daemon/host/device-config';
import {
  type DeviceAddresses,
  hostAddresses,
  interfaceIndex,
  primaryAddress,
} from '#daemon/host/host-addresses';
import type { Rail } from '#daemon/host/rails';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { GidTableEntry } from '#daemon/host/roce/gid-table';
import type { Persona } from '../uverbs/persona.ts';
import { PERSONAS } from '../uverbs/personas.ts';

/** Number of a character device. */
export interface DeviceNumber {
  readonly major: number;
  readonly minor: number;
}

/** Linux's device numbers of `uverbs0` and up start here. */
const UVERBS_MAJOR = 231;
const UVERBS_MINOR_FIRST = 192;

/** `/dev/infiniband/rdma_cm`: a misc device, whose minor number the kernel chooses at boot. */
export const RDMA_CM_NUMBER: DeviceNumber = { major: 10, minor: 58 };

/**
 * States of a port, numbered and spelt as by the kernel: `enum ib_port_state` and the physical state.
 */
export const PORT_STATES = {
  active: { state: 4, name: '4: ACTIVE', physState: 5, physName: '5: LinkUp' },
  down: { state: 1, name: '1: DOWN', physState: 3, physName: '3: Disabled' },
} as const;

/** A device as the kernel would present it. */
export interface KernelDevice extends DeviceAddresses {
  /** Position in the host, and `DEV_INDEX` of netlink. */
  readonly index: number;
  readonly name: string;
  readonly transport: DeviceTransport;
  readonly persona: Persona;
  /** Name of its node in `/dev/infiniband`. */
  readonly nodeName: string;
  readonly number: DeviceNumber;
  /** 16 hex digits. */
  readonly nodeGuid: string;
  /** Its place in the machine, if it is a rail. */
  readonly rail?: Rail | undefined;
  /** The network interface of its port, if netlink names it. */
  readonly netdev?: { readonly index: number; readonly name: string } | undefined;
  readonly portState: PortAttributes['state'];
  /** The current values of its port's counters by name, on devices that have some. */
  readonly hwCounters?: Readonly<Record<string, number>> | undefined;
  readonly portCounters?: Readonly<Record<string, number>> | undefined;
  /** The current GID table of a RoCE device. */
  readonly gids?: readonly GidTableEntry[] | undefined;
}

/** The devices of a host, in its order; those beyond the number range are omitted. */
export function kernelDevices(host: Pick<RnicHost, 'devices'>): KernelDevice[] {
  return host.devices.slice(0, SHOWN_DEVICES_MAX).map((device, index) => ({
    index,
    name: device.info.name,
    transport: device.transport,
    persona: PERSONAS[device.transport],
    nodeName: `uverbs${index}`,
    number: { major: UVERBS_MAJOR, minor: UVERBS_MINOR_FIRST + index },
    nodeGuid: device.info.nodeGuid,
    addresses: device.info.addresses,
    others: device.others,
    rail: device.rail,
    shownInterface: device.rail?.interfaceName,
    get netdev() {
      return PERSONAS[device.transport].namesInterface ? netdevOf(this) : undefined;
    },
    get portState() {
      return device.port().state;
    },
    get hwCounters() {
      return device.hwCounters && { ...device.hwCounters, ...device.linkCounters };
    },
    get portCounters() {
      return device.portCounters;
    },
    get gids() {
      return device.rocePort?.gids.entries();
    },
  }));
}

function netdevOf(device: DeviceAddresses): KernelDevice['netdev'] {
  const index = realInterfaceIndex(device);
  const { interfaceName: name } = primaryAddress(device, hostAddresses());
  return index === undefined ? undefined : { index, name };
}

/** The index of the host's interface that has the device's address, whatever name is shown. */
function realInterfaceIndex({ addresses, others }: DeviceAddresses): number | undefined {
  return interfaceIndex(primaryAddress({ addresses, others }, hostAddresses()).interfaceName);
}

/** A device number in netlink's encoding (the kernel's `huge_encode_dev`). */
export function encodedNumber({ major, minor }: DeviceNumber): bigint {
  return BigInt((minor & 0xff) | (major << 8)) | (BigInt(minor & ~0xff) << 12n);
}
