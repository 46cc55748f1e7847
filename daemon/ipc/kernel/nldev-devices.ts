/** How the devices of a host show as kernel devices: indices, character devices, GUIDs. */
import type { RnicHost } from '../../adapter/rnic-host.ts';

/** Number of a character device. */
export interface DeviceNumber {
  readonly major: number;
  readonly minor: number;
}

/** The numbers that Linux gives to `uverbs0` and the following. */
const UVERBS_MAJOR = 231;
const UVERBS_MINOR_FIRST = 192;
/** Devices for which Linux has such numbers; the shim opens no others. */
const UVERBS_COUNT = 64;

/** `/dev/infiniband/rdma_cm`: a misc device, whose minor number any kernel chooses at its start. */
export const RDMA_CM_NUMBER: DeviceNumber = { major: 10, minor: 58 };

/** A device as the kernel would show it. */
export interface KernelDevice {
  /** Position in the host, and `DEV_INDEX` of netlink. */
  readonly index: number;
  readonly name: string;
  /** Name of its node below `/dev/infiniband`. */
  readonly nodeName: string;
  readonly number: DeviceNumber;
  /** 16 hex digits. */
  readonly nodeGuid: string;
  /** Addresses that it answers for; empty: all of the host's. */
  readonly addresses: readonly string[];
}

/** The devices of a host, in its order; those beyond what can be numbered are left out. */
export function kernelDevices(host: Pick<RnicHost, 'devices'>): KernelDevice[] {
  return host.devices.slice(0, UVERBS_COUNT).map(({ info }, index) => ({
    index,
    name: info.name,
    nodeName: `uverbs${index}`,
    number: { major: UVERBS_MAJOR, minor: UVERBS_MINOR_FIRST + index },
    nodeGuid: info.nodeGuid,
    addresses: info.addresses,
  }));
}

/** A device number as netlink carries it (the kernel's `huge_encode_dev`). */
export function encodedNumber({ major, minor }: DeviceNumber): bigint {
  return BigInt((minor & 0xff) | (major << 8)) | (BigInt(minor & ~0xff) << 12n);
}
