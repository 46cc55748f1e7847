/** Memory of a sender for output that the socket has not taken yet. */

/** A chunk with output: `0 <= flushed <= polled <= committed <= bytes.length`. */
export class OutputChunk {
  readonly bytes: Uint8Array;
  committed = 0;
  polled = 0;
  flushed = 0;
  /** CRCs of FPDUs not yet polled may be missing. */
  unsealed = false;
  /** Bytes not yet polled may stand for lent payload. */
  lent = false;
  next: OutputChunk | undefined = undefined;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  /** True if `bytes` more fit. */
  hasRoom(bytes: number): boolean {
    // A dropped reservation can leave a chunk without output; it is as good as a new one.
    if (this.flushed === this.committed) {
      this.committed = 0;
      this.polled = 0;
      this.flushed = 0;
      this.unsealed = false;
      this.lent = false;
    }
    return this.committed + bytes <= this.bytes.length;
  }
}
