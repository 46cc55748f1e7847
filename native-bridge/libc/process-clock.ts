/**
 * The monotonic clock of this process, and its last reading. Reading the clock costs as much as copying a small
 * message, so only the code that starts a piece of work reads it; what the work calls uses that reading.
 */
class ProcessClock {
  /** Milliseconds at the last reading. */
  recentMs = performance.now();

  /** Reads the clock: milliseconds from an arbitrary start. */
  readMs(): number {
    this.recentMs = performance.now();
    return this.recentMs;
  }
}

export const processClock = new ProcessClock();
