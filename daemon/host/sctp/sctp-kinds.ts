/** Kinds of devices that are iWARP over SCTP. */
import { NEVER } from '#base/time';
import type { FaultTarget } from '#contract/protocol/faults';
import type { DeviceKind } from '../device-kind.ts';

/** Fault targets that SCTP messages lack, and why. */
const NOT_OVER_SCTP: Readonly<Partial<Record<FaultTarget, string>>> = {
  bytes: 'whose messages are whole',
  crc: 'whose messages have no CRC: SCTP checks its packets',
  markers: 'whose messages have no markers',
  lengths: 'whose messages have no length of their own',
};

const SCTP = {
  needsAddresses: true,
  // The nudge is for siw's sockets. No peer over SCTP needs it.
  wire: { nudgeDelayMicros: NEVER },
  lacks(target: FaultTarget, device: string | undefined): string | undefined {
    const reason = NOT_OVER_SCTP[target];
    const which = device === undefined ? 'all devices are' : `${device} is`;
    return reason && `iWARP devices over TCP, and ${which} over SCTP, ${reason}`;
  },
  load: async () => (await import('./sctp-carrier.ts')).SCTP,
} as const;

/** The kernel makes the packets. */
const KERNEL = {
  ...SCTP,
  notIsolated: "the kernel's SCTP does not run on an isolated network",
  faultTargets: ['connection'],
  lacks(target: FaultTarget, device: string | undefined): string | undefined {
    if (target !== 'packets') return SCTP.lacks(target, device);
    const whose = device ?? 'the devices';
    return `packets, and the kernel makes those of ${whose}: use tc qdisc ... netem for them`;
  },
} as const;

export const SCTP_KINDS: readonly DeviceKind[] = [
  {
    name: 'sctp',
    choice: { transport: 'iwarp', lowerLayer: 'sctp' },
    ...SCTP,
    faultTargets: ['packets', 'connection'],
  },
  {
    name: 'kernel-sctp',
    choice: { transport: 'iwarp', lowerLayer: 'sctp', sctpTransport: 'kernel' },
    ...KERNEL,
  },
  {
    name: 'kernel-sctp-udp',
    choice: { transport: 'iwarp', lowerLayer: 'sctp', sctpTransport: 'kernel-udp' },
    ...KERNEL,
  },
];
