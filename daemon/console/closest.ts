/** Suggests the word that a reader probably meant, from a closed set. */

/** Longer words are not compared: a command line may contain anything. */
const WORD_MAX = 64;

/** ` (Did you mean drop?)`, or nothing if no word of the set is close. */
export function didYouMean(word: string, words: Iterable<string>): string {
  const found = closestWord(word, words);
  return found === undefined ? '' : ` (Did you mean ${found}?)`;
}

/**
 * The word of the set that is closest to `word`, or that begins with the closest one; undefined if none
 * is close enough for a typo.
 */
function closestWord(word: string, words: Iterable<string>): string | undefined {
  if (word.length > WORD_MAX) return undefined;
  const all = [...words];
  const whole = closestOf(word, all);
  if (whole !== undefined) return whole;
  const beginning = closestOf(word, all.map(firstPart));
  return all.find((each) => firstPart(each) === beginning);
}

/** `read` of `read-request`. */
function firstPart(word: string): string {
  return word.split('-', 1)[0] ?? word;
}

function closestOf(word: string, words: readonly string[]): string | undefined {
  // A third of the letters may be wrong; in a short word, one.
  let best = Math.max(1, Math.floor(word.length / 3)) + 1;
  let found: string | undefined;
  for (const each of words) {
    const distance = editDistance(word.toLowerCase(), each.toLowerCase());
    if (distance >= best || distance >= each.length) continue;
    best = distance;
    found = each;
  }
  return found;
}

/** Number of letters to insert, remove, replace or swap with their neighbour. */
function editDistance(one: string, other: string): number {
  let before: number[] = [];
  let above = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (let row = 1; row <= one.length; row++) {
    const here = [row];
    for (let column = 1; column <= other.length; column++) {
      const same = one[row - 1] === other[column - 1];
      let least = Math.min(
        (above[column] ?? 0) + 1,
        (here[column - 1] ?? 0) + 1,
        (above[column - 1] ?? 0) + (same ? 0 : 1),
      );
      const swapped = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      if (swapped) least = Math.min(least, (before[column - 2] ?? 0) + 1);
      here.push(least);
    }
    before = above;
    above = here;
  }
  return above[other.length] ?? 0;
}
