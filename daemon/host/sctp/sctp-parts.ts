/** What a host needs for SCTP devices; loaded only for them. */
import { DeviceTransports } from './device-transports.ts';
import { MemoryDatagrams } from './memory-datagrams.ts';
import { SctpCarrier } from './sctp-carrier.ts';
import type { TransportMaker } from './sctp-network.ts';

/** See `SCTP_PARTS`. */
export interface SctpParts {
  readonly SctpCarrier: typeof SctpCarrier;
  /** A simulation has its own. */
  readonly makeTransport: TransportMaker;
}

export const SCTP_PARTS: SctpParts = {
  SctpCarrier,
  makeTransport: (clock, devices, isolated = false) => {
    return new DeviceTransports(clock, devices, isolated ? new MemoryDatagrams(clock) : undefined);
  },
};
