/** What a host needs for devices of SCTP, and loads only for them. */
import { DDP_ADAPTATION, SctpLayer } from '../../iwarp/sctp/sctp-layer.ts';
import { SctpNetwork } from './sctp-network.ts';

/** See the module's comment. */
export const SCTP_PARTS = { DDP_ADAPTATION, SctpLayer, SctpNetwork };

/** The type of `SCTP_PARTS`, which does not load it. */
export type SctpParts = typeof SCTP_PARTS;
