/** A capture file is invalid. */
export class CaptureError extends Error {
  override readonly name = 'CaptureError';
  /** Offset in the file, in bytes. */
  readonly offset: number;

  constructor(text: string, offset: number) {
    super(`${text} at byte ${offset}`);
    this.offset = offset;
  }
}
