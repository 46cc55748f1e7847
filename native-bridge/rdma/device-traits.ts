/** What a driver can do that no attribute tells, by the vendor that it reports. */

/** Abilities and limits of a driver. */
export interface DeviceTraits {
  /** A region may have another address for peers than its own. */
  readonly iova: boolean;
  /** Regions may count from 0. */
  readonly zeroBased: boolean;
  /** User programs may invalidate their own STags. */
  readonly localInvalidate: boolean;
  /** Octets of private data that a connect request can carry. */
  readonly maxPrivateData: number;
  /** Octets of inline payload at most. */
  readonly maxInline: number;
  /** Receives and RDMA Reads without an element have to be posted with an empty one. */
  readonly needsElement: boolean;
  /** What is posted in ERR completes with a flush. libsiw leaves it in its queues for good. */
  readonly flushesLatePosts: boolean;
  /** `ibv_query_qp` has the depths of the wrong direction. */
  readonly swapsDepths: boolean;
  /** A queue pair that was connected, or is in ERR, can go back to RESET. */
  readonly resets: boolean;
  /** Entries of a completion queue that has to be the first of a context; 0 for none. */
  readonly firstQueueEntries: number;
}

/** `ibv_device_attr.vendor_id` of the kernel's soft-iWARP ("bmt"). */
const SIW_VENDOR_ID = 0x626d74;
/** Of the emulated RNIC under libsiw ("iwd"). */
const EMULATED_VENDOR_ID = 0x697764;

/** The connection manager counts private data in one octet. */
const CM_PRIVATE_DATA_MAX = 255;

const ORDINARY: DeviceTraits = {
  iova: true,
  zeroBased: true,
  localInvalidate: true,
  maxPrivateData: CM_PRIVATE_DATA_MAX,
  maxInline: 64,
  needsElement: false,
  flushesLatePosts: true,
  swapsDepths: false,
  resets: true,
  firstQueueEntries: 0,
};

/**
 * libsiw takes the mapping at 0x90000 of a context for a failed one (SIW_INVAL_UOBJ_KEY): a context
 * that has reached it, by some 72 queues, makes no more. A first one of 1 MiB covers the place.
 */
const SIW_FIRST_QUEUE_ENTRIES = 32_768;

/** siw: 252 octets of private data and the 4 of RFC 6581 overflow its count of them. */
const SIW: DeviceTraits = {
  iova: false,
  zeroBased: false,
  localInvalidate: false,
  maxPrivateData: 251,
  maxInline: 80,
  needsElement: true,
  flushesLatePosts: false,
  swapsDepths: true,
  resets: false,
  firstQueueEntries: SIW_FIRST_QUEUE_ENTRIES,
};

/** The emulated RNIC: libsiw's limits, without the kernel's. */
const EMULATED: DeviceTraits = {
  ...SIW,
  maxPrivateData: CM_PRIVATE_DATA_MAX,
  swapsDepths: false,
  firstQueueEntries: 0,
};

/** The traits of the driver with this vendor id. */
export function traitsOf(vendorId: number): DeviceTraits {
  switch (vendorId) {
    case SIW_VENDOR_ID:
      return SIW;
    case EMULATED_VENDOR_ID:
      return EMULATED;
    default:
      return ORDINARY;
  }
}
