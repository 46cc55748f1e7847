/** Effects that the NIC reports to its host, drained after every call into the NIC or a stream. */

import type { AsyncEffect } from './effect-sink.ts';
import type { QPEffect } from './queue-pair.ts';
import type { CQEffect } from './queues/completion-queue.ts';
import type { SRQEffect } from './queues/shared-receive-queue.ts';

/** One effect. Objects are reused where possible: read them, do not keep them. */
export type NicEffect =
  | CQEffect
  | QPEffect
  | SRQEffect
  /** An event of the port or the device. */
  | AsyncEffect<undefined>;
