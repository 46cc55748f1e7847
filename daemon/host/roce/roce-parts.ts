/** Everything that a host needs for RoCE devices. */
import { ROCE_DEVICE_PARTS, type RoceDeviceParts } from './roce-device-parts.ts';
import { ROCE_NETWORK_PARTS, type RoceNetworkParts } from './roce-network-parts.ts';

/** The parts of RoCE devices, with or without those of their network. */
export interface RoceParts extends RoceDeviceParts {
  readonly network?: RoceNetworkParts;
}

export const ROCE_PARTS: RoceParts = { ...ROCE_DEVICE_PARTS, network: ROCE_NETWORK_PARTS };
