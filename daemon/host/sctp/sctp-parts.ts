/** What a host needs for SCTP devices; loaded only for them. */
import { SctpFrameReader } from '#daemon/iwarp/faults/sctp-frame-reader';
import { DDP_ADAPTATION, SctpLayer } from '#daemon/iwarp/sctp/sctp-layer';
import type { SctpTransportKind } from '../device-config.ts';
import type { HostClock } from '../links/network.ts';
import { DeviceTransports } from './device-transports.ts';
import { MemoryDatagrams } from './memory-datagrams.ts';
import { type PacketTransport, SctpNetwork } from './sctp-network.ts';

export const SCTP_PARTS = {
  DDP_ADAPTATION,
  SctpFrameReader,
  SctpLayer,
  SctpNetwork,
  /** Makes the transport of a host's devices; a simulation replaces it. */
  makeTransport: (
    clock: HostClock,
    devices: readonly { readonly addresses: readonly string[]; readonly sctp: SctpTransportKind }[],
    isolated = false,
  ): PacketTransport => {
    return new DeviceTransports(clock, devices, isolated ? new MemoryDatagrams(clock) : undefined);
  },
};

/** The type of `SCTP_PARTS`, which does not load it. */
export type SctpParts = typeof SCTP_PARTS;
