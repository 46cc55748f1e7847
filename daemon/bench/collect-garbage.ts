/**
 * Loaded into a daemon whose memory is measured, which is started with `--expose-gc`: collects all
 * garbage whenever the bench asks, and answers.
 */

/** Until nothing is left that a first collection only found to be garbage. */
const COLLECTIONS = 2;

process.on('message', () => {
  for (let left = COLLECTIONS; left > 0; left--) globalThis.gc?.();
  process.send?.('collected');
});
// To listen must not keep the daemon from stopping.
process.channel?.unref();
