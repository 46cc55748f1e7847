/**
 * Loaded into a daemon whose memory is measured and which runs with `--expose-gc`: collects garbage
 * when the bench asks, and replies.
 */

/** A second collection frees what the first one only found to be garbage. */
const COLLECTIONS = 2;

process.on('message', () => {
  for (let left = COLLECTIONS; left > 0; left--) globalThis.gc?.();
  process.send?.('collected');
});
// Listening must not keep the daemon from exiting.
process.channel?.unref();
