/**
 * Limits of a RoCE device that differ from an iWARP device's: those of Linux's rxe, by which programs size
 * their queues. Quotas bound what a client can hold.
 */
import type { DeviceProfile } from '#daemon/rnic/device-profile';

export const ROCE_PROFILE: Partial<DeviceProfile> = {
  maxQpWr: 1_048_576,
  maxSrqWr: 1_048_576,
  maxCqe: 32_767,
};
