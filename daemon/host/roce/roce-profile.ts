/**
 * Limits of a RoCE device that differ from an iWARP device's: those of Linux's rxe, by which programs size
 * their queues, but for `maxCqe`. Quotas bound what a client can hold.
 */
import type { DeviceProfile } from '#daemon/rnic/device-profile';

export const ROCE_PROFILE = {
  maxQpWr: 1_048_576,
  maxSrqWr: 1_048_576,
  // Not rxe's 32,767: libfabric's RxM layer asks for 262,144 entries, which adapters have.
  maxCqe: 524_287,
} as const satisfies Partial<DeviceProfile>;
