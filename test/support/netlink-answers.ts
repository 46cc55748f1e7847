/** Answers of netlink about devices that have no objects. */
import type { KernelDevice } from '#daemon/ipc/kernel/nldev/devices';
import { answerNetlink } from '#daemon/ipc/kernel/nldev/nldev';
import { DeviceResources, type ListedId } from '#daemon/ipc/objects/device-resources';
import { NumberedList } from '#daemon/ipc/objects/numbered-list';

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
