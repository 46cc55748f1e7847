/**
 * What a host needs for RoCE devices, in one value: a host without them does not load it, and is
 * ready sooner.
 */
import { makeWire } from '../../roce/transport/transport.ts';
import { PATH_MTU_MAX_BYTES } from '../../roce/wire/path-mtu.ts';
import { PacketNetwork } from './packet-network.ts';
import { RoceCm } from './roce-cm.ts';
import { hwCounters, linkCounters } from './roce-counters.ts';
import { RocePort } from './roce-port.ts';
import { ROCE_PROFILE } from './roce-profile.ts';
import { RoceVerbs } from './roce-verbs.ts';

/** See the module's comment. */
export const ROCE_PARTS = {
  PacketNetwork,
  RoceCm,
  RocePort,
  RoceVerbs,
  hwCounters,
  linkCounters,
  makeWire,
  portMtuBytes: PATH_MTU_MAX_BYTES,
  profile: ROCE_PROFILE,
} as const;

/** The type of `ROCE_PARTS`, which does not load it. */
export type RoceParts = typeof ROCE_PARTS;
