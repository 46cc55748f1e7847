/** What is wrong with a capture file. */
export class CaptureError extends Error {
  override readonly name = 'CaptureError';
  /** Where in the file, in octets. */
  readonly offset: number;

  constructor(text: string, offset: number) {
    super(`${text} at octet ${offset}`);
    this.offset = offset;
  }
}
