/**
 * Loaded into a daemon whose memory is measured: collects garbage when the bench asks, and replies.
 * Needs `--expose-gc`.
 */

/** The second collection frees objects that the first one only found to be garbage. */
const COLLECTIONS = 2;

process.on('message', () => {
  for (let left = COLLECTIONS; left > 0; left--) globalThis.gc?.();
  process.send?.('collected');
});
// Listening must not keep the daemon from exiting.
process.channel?.unref();
