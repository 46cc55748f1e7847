/**
 * The parts of RoCE devices without their network, in one value. A host without RoCE devices does not load it
 * and is ready sooner.
 */
import { hwCounters, linkCounters } from './roce-counters.ts';
import { RocePort } from './roce-port.ts';
import { ROCE_PROFILE } from './roce-profile.ts';
import { RoceVerbs } from './roce-verbs.ts';

export const ROCE_DEVICE_PARTS = {
  RocePort,
  RoceVerbs,
  hwCounters,
  linkCounters,
  profile: ROCE_PROFILE,
} as const;

/** The type of `ROCE_DEVICE_PARTS`, which does not load it. */
export type RoceDeviceParts = typeof ROCE_DEVICE_PARTS;
