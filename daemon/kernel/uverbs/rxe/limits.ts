/** The limits that Linux's rxe reports and enforces, but for `completions`. */
import { ROCE_PROFILE } from '#daemon/host/roce/roce-profile';

export const RxeLimit = {
  queuePairs: 1_048_560,
  /** Entries of a send, receive or shared receive queue. */
  workRequests: 1_048_576,
  /** Scatter/gather elements of a work request. */
  elements: 32,
  /** Scatter/gather elements of a receive in a shared queue. */
  sharedElements: 27,
  inlineBytes: 512,
  completionQueues: 1_048_576,
  completions: ROCE_PROFILE.maxCqe,
  regions: 524_287,
  windows: 524_287,
  protectionDomains: 1_048_576,
  sharedQueues: 917_503,
  addressHandles: 32_767,
  /** Outstanding reads and atomics per queue pair, in each direction; and of the whole device. */
  readDepth: 128,
  readDepthOfDevice: 258_048,
  multicastGroups: 8192,
  membersOfGroup: 56,
  members: 458_752,
  partitionKeys: 64,
  /** Bytes; reported but, as by rxe, not enforced. */
  messageBytes: 0x0080_0000,
} as const;
