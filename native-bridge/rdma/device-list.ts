/** The devices known to rdma-core. */
import { lastErrno } from '../libc/libc.ts';
import { callFailure } from './errors.ts';
import { CONSTANTS } from './layouts.ts';
import type { Libraries } from './libraries.ts';
import { pointerAt, StructBlock } from './struct-block.ts';

/** One device of `ibv_get_device_list`. */
export interface NativeDeviceInfo {
  /** Name in the RDMA subsystem, for example 'siw0'. */
  readonly name: string;
  /** Name of the device node, for example 'uverbs0'. */
  readonly nodeName: string;
  /** 64-bit GUID, as 16 hex digits. */
  readonly nodeGuid: string;
  readonly transport: 'ib' | 'iwarp' | 'other';
}

const POINTER_BYTES = 8;
const ENOSYS = 38;

/**
 * Lists the devices. Empty if there are none or the kernel has no RDMA. Throws `NativeError` if
 * rdma-core lacks permission to list them.
 */
export function listDevices(libraries: Libraries): NativeDeviceInfo[] {
  return withDeviceList(libraries, (devices) => devices.map(({ info }) => info));
}

/** A device of the list, to be opened before the list is freed. */
export interface ListedDevice {
  readonly pointer: number;
  readonly info: NativeDeviceInfo;
}

/** Passes the list to `use` and frees it. An opened device stays valid. */
export function withDeviceList<T>(
  libraries: Libraries,
  use: (devices: readonly ListedDevice[]) => T,
): T {
  const { verbs } = libraries;
  const list = verbs.ibv_get_device_list(0);
  if (list === 0) {
    // A kernel without RDMA is not an error: there are no devices.
    if (lastErrno() === ENOSYS) return use([]);
    throw callFailure('ibv_get_device_list', 'this host', lastErrno());
  }
  try {
    const devices: ListedDevice[] = [];
    for (let at = list; ; at += POINTER_BYTES) {
      const pointer = pointerAt(at);
      if (pointer === 0) return use(devices);
      devices.push({ pointer, info: describe(libraries, pointer) });
    }
  } finally {
    verbs.ibv_free_device_list(list);
  }
}

function describe(libraries: Libraries, pointer: number): NativeDeviceInfo {
  const device = new StructBlock('ibv_device').load(pointer);
  const transport = device.getSigned('transport_type');
  return {
    name: device.getText('name'),
    nodeName: device.getText('dev_name'),
    nodeGuid: guidText(BigInt(libraries.verbs.ibv_get_device_guid(pointer))),
    transport:
      transport === CONSTANTS.IBV_TRANSPORT_IWARP
        ? 'iwarp'
        : transport === CONSTANTS.IBV_TRANSPORT_IB
          ? 'ib'
          : 'other',
  };
}

/** A GUID, in network order in memory as rdma-core stores it, as 16 hex digits. */
export function guidText(guid: bigint): string {
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigUint64(0, guid, true);
  return bytes.getBigUint64(0).toString(16).padStart(16, '0');
}
