/** Properties of a driver that no attribute reports, by vendor id. */

export interface DeviceTraits {
  /** A region's address for peers may differ from its own. */
  readonly iova: boolean;
  /** Zero-based regions are supported. */
  readonly zeroBased: boolean;
  /** User programs may invalidate their own STags. */
  readonly localInvalidate: boolean;
  /** Bytes of private data that a connect request can carry. */
  readonly maxPrivateData: number;
  /** Maximum bytes of inline payload. */
  readonly maxInline: number;
  /** Receives and RDMA Reads without an element must be posted with an empty one. */
  readonly needsElement: boolean;
  /** Work posted in ERR completes with a flush. libsiw keeps it in its queues forever. */
  readonly flushesLatePosts: boolean;
  /** `ibv_query_qp` swaps the read depths. */
  readonly swapsDepths: boolean;
  /** A queue pair that was connected, or is in ERR, can go back to RESET. */
  readonly resets: boolean;
  /** Required entries of the first completion queue of a context; 0 for none. */
  readonly firstQueueEntries: number;
}

/** `ibv_device_attr.vendor_id` of the kernel's soft-iWARP ("bmt"). */
const SIW_VENDOR_ID = 0x626d74;
/** Vendor id of the emulated RNIC under libsiw ("iwd"). */
const EMULATED_VENDOR_ID = 0x697764;

/** The connection manager stores the length of private data in one byte. */
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
 * that reaches it, after some 72 queues, can create no more. A first queue of 1 MiB covers that offset.
 */
const SIW_FIRST_QUEUE_ENTRIES = 32_768;

/** siw: 252 bytes of private data and the 4 of RFC 6581 overflow its length count. */
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
