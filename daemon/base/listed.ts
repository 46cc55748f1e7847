/** Lists in sentences. `Intl.ListFormat` does the same, but loads data for 20 ms. */

/** `a`, `a or b`, or `a, b or c`. */
export function listed(words: readonly string[], conjunction: 'and' | 'or'): string {
  const last = words.at(-1) ?? '';
  if (words.length < 2) return last;
  return `${words.slice(0, -1).join(', ')} ${conjunction} ${last}`;
}
