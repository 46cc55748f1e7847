/** Sizes of queue pairs. */

/** Queues of these depths, with so many pieces a request and so many bytes inline. */
export function queueSizes(maxSendWr: number, maxRecvWr = maxSendWr, sges = 1, maxInlineData = 0) {
  return { maxSendWr, maxRecvWr, maxSendSge: sges, maxRecvSge: sges, maxInlineData };
}
