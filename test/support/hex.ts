/** No bytes at all. */
export const NO_BYTES = new Uint8Array(0);

/**
 * Bytes from hexadecimal text: blanks are ignored, and a token `ab*24` means 24 times `ab`, which
 * keeps golden bytes with long runs readable.
 */
export function bytesOf(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const token of text.split(/\s+/)) {
    const [digits = '', times = '1'] = token.split('*');
    if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error(`not hexadecimal: ${token}`);
    const run = (digits.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16));
    for (let i = 0; i < Number(times); i++) for (const byte of run) bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/** Bytes as lower-case hexadecimal text without blanks. */
export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Hexadecimal text as `bytesOf` takes it, in the form that `hexOf` gives. */
export function compactHex(text: string): string {
  return hexOf(bytesOf(text));
}
