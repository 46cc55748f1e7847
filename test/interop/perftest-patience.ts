/** perftest in a guest, which may be too slow for it when the host is busy. */

/** How often a perftest is started, where it was too slow. */
export const ATTEMPTS = 3;

const TOO_SLOW = /RDMA_CM_EVENT_REJECTED|ERRNO: Connection refused|Correlation coefficient/;

/**
 * True for a perftest that was too slow for itself. It exchanges parameters over one connection and
 * then opens another, for which its server starts to listen only then, without notice; if that takes
 * longer than the half second for which our device retries, or keeps the port, the client is
 * refused. It also fails if the processor's clock and the time of day seem to
 * disagree, as they do in a guest that waits for the host.
 */
export function perftestWasTooSlow(ended: {
  readonly status: number | undefined;
  readonly output: string;
}): boolean {
  return ended.status !== 0 && TOO_SLOW.test(ended.output);
}

/** Retries until it is fast enough; otherwise `attempt` returns the client's output. */
export async function untilFast(attempt: () => Promise<string | undefined>): Promise<void> {
  let output: string | undefined;
  for (let count = 0; count < ATTEMPTS; count++) {
    output = await attempt();
    if (output === undefined) return;
  }
  throw new Error(`too slow in each of ${ATTEMPTS} attempts: ${output}`);
}
