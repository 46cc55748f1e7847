/** Sizes of queue pairs. */

/** Queues of these depths, with this many pieces and inline bytes per request. */
export function queueSizes(maxSendWr: number, maxRecvWr = maxSendWr, sges = 1, maxInlineData = 0) {
  return { maxSendWr, maxRecvWr, maxSendSge: sges, maxRecvSge: sges, maxInlineData };
}
