/** perftest on a busy machine or in a guest, which may be too slow for it. */

/** Maximum starts of a perftest that is too slow. */
export const ATTEMPTS = 3;

const TOO_SLOW = /RDMA_CM_EVENT_REJECTED|ERRNO: Connection refused/;

/**
 * True if a perftest failed only because it ran too slowly. It exchanges parameters over one
 * connection and then opens another, for which its server only then starts to listen, without
 * notice. If that takes longer than the half second for which our device retries, or keeps the
 * port, the client is refused. Run it with `-F`: without, it also fails if the processor's clock and
 * the time of day seem to disagree, as they do on a processor that waits for another program.
 */
export function perftestWasTooSlow(ended: {
  readonly status: number | undefined;
  readonly output: string;
}): boolean {
  return ended.status !== 0 && TOO_SLOW.test(ended.output);
}

/**
 * True if a perftest run with `-F` printed zeros: to it, the processor's clock and the time of day seemed to
 * disagree.
 */
export function measuredNothing({ output }: { readonly output: string }): boolean {
  return output.includes('Correlation coefficient');
}

/** Retries `attempt`, which returns undefined if it was fast enough, else the client's output. */
export async function untilFast(attempt: () => Promise<string | undefined>): Promise<void> {
  let output: string | undefined;
  for (let count = 0; count < ATTEMPTS; count++) {
    output = await attempt();
    if (output === undefined) return;
  }
  throw new Error(`too slow in each of ${ATTEMPTS} attempts: ${output}`);
}
