/** Answers of netlink about devices that have no objects. */

import { DeviceResources, type ListedId } from '#daemon/clients/objects/device-resources';
import { NumberedList } from '#daemon/clients/objects/numbered-list';
import type { KernelDevice } from '#daemon/kernel/nldev/devices';
import { answerNetlink } from '#daemon/kernel/nldev/nldev';

/** The datagrams that answer a message. */
export function netlinkDatagrams(
  bytes: Uint8Array,
  devices: readonly KernelDevice[],
): readonly Uint8Array[] {
  const { datagrams } = answerNetlink(bytes, devices, (device) => {
    const objects = { resources: new DeviceResources(), ids: new NumberedList<ListedId>() };
    return { device, ...objects, showsKeys: true };
  });
  return datagrams;
}
