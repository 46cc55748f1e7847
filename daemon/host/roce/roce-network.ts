/**
 * The network of RoCE devices, in one value. No queue pair exists before the first client, so a daemon loads
 * it once it is ready: that takes 40 ms.
 */
import { makeWire } from '#daemon/roce/transport/transport';
import { PATH_MTU_MAX_BYTES } from '#daemon/roce/wire/path-mtu';
import { PacketNetwork } from './packet-network.ts';
import { RoceCm } from './roce-cm.ts';

export const ROCE_NETWORK = {
  PacketNetwork,
  RoceCm,
  makeWire,
  portMtuBytes: PATH_MTU_MAX_BYTES,
} as const;

/** The type of `ROCE_NETWORK`, which does not load it. */
export type RoceNetwork = typeof ROCE_NETWORK;
