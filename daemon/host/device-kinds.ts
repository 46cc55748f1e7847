/** The kinds of emulated devices. A new one is a row here, and a folder for its carrier. */
import type { DeviceKind } from './device-kind.ts';
import { ROCE_PROFILE } from './roce/roce-profile.ts';
import { SCTP_KINDS } from './sctp/sctp-kinds.ts';
import type { CarrierModule, KindChoice } from './stream-carrier.ts';

/** Not constant: a test adds the kind of its own carrier before it makes devices. */
export const DEVICE_KINDS: DeviceKind[] = [
  {
    name: 'iwarp',
    choice: { transport: 'iwarp' },
    faultTargets: ['connection', 'bytes', 'crc', 'markers', 'lengths'],
  },
  {
    name: 'roce',
    choice: { transport: 'roce' },
    profile: ROCE_PROFILE,
    faultTargets: ['packets', 'requests', 'icrc'],
  },
  ...SCTP_KINDS,
];

/** The kind of a device; undefined if there is none. */
export function deviceKind(wanted: KindChoice): DeviceKind | undefined {
  const { transport = 'iwarp', lowerLayer = 'tcp', sctpTransport } = wanted;
  return DEVICE_KINDS.find(({ choice }) => {
    if ((choice.transport ?? 'iwarp') !== transport) return false;
    if ((choice.lowerLayer ?? 'tcp') !== lowerLayer) return false;
    return (choice.sctpTransport ?? 'usrsctp') === (sctpTransport ?? 'usrsctp');
  });
}

/** Loads the carriers, other than TCP, of the streams of these devices. */
export async function loadCarriers(
  devices: readonly KindChoice[],
): Promise<readonly CarrierModule[]> {
  const loads = new Set(devices.flatMap((device) => deviceKind(device)?.load ?? []));
  return await Promise.all([...loads].map((load) => load()));
}
