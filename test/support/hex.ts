/**
 * Octets from hexadecimal text: blanks are free, and a token `ab*24` stands for 24 times `ab`, so
 * that golden octets with long runs stay readable.
 */
export function octetsOf(text: string): Uint8Array {
  const octets: number[] = [];
  for (const token of text.split(/\s+/)) {
    const [digits = '', times = '1'] = token.split('*');
    if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error(`not hexadecimal: ${token}`);
    const run = (digits.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16));
    for (let i = 0; i < Number(times); i++) octets.push(...run);
  }
  return Uint8Array.from(octets);
}

/** Octets as lower-case hexadecimal text without blanks. */
export function hexOf(octets: Uint8Array): string {
  return Array.from(octets, (octet) => octet.toString(16).padStart(2, '0')).join('');
}

/** Parts behind one another. */
export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
