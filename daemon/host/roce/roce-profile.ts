/**
 * Limits of a RoCE device that differ from an iWARP device's: those that Linux's rxe reports, by
 * which programs size their queues. What a client can hold is bounded by its quotas.
 */
import type { DeviceProfile } from '#daemon/rnic/device-profile';

export const ROCE_PROFILE: Partial<DeviceProfile> = {
  maxQpWr: 1_048_576,
  maxSrqWr: 1_048_576,
  maxCqe: 32_767,
};
