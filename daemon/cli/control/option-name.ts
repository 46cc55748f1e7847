/** The option of a field: `--bytes-per-second` for `bytesPerSecond`. */
export function optionOf(field: string): string {
  return `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
