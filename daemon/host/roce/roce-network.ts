/**
 * The network of RoCE devices, in one value. No queue pair exists before the first client, so a daemon loads
 * it once it is ready: that takes 40 ms.
 */
import { makeWire } from '#daemon/roce/transport/transport';
import { PATH_MTU_MAX_BYTES } from '#daemon/roce/wire/path-mtu';
import { KERNEL_UDP } from './kernel-udp.ts';
import { PacketNetwork } from './packet-network.ts';
import { RoceCm } from './roce-cm.ts';
import type { UdpNetwork } from './udp-network.ts';

export const ROCE_NETWORK = {
  PacketNetwork,
  RoceCm,
  makeWire,
  portMtuBytes: PATH_MTU_MAX_BYTES,
  /** Where packets leave the host. */
  udp: KERNEL_UDP as UdpNetwork,
} as const;

/** The type of `ROCE_NETWORK`, which does not load it. */
export type RoceNetwork = typeof ROCE_NETWORK;
