/** Random numbers, seeded where a run must be repeatable. */

/** A source of unsigned 32-bit random numbers. */
export type Random32 = () => number;

/** A small seeded generator (sfc32) for simulations; too weak for devices on a network. */
export function seededRandom(seed: number): Random32 {
  let a = seed >>> 0;
  let b = Math.floor(seed / 2 ** 32) >>> 0;
  let c = 0x9e3779b9;
  let counter = 1;
  const next = (): number => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + sum;
    return sum >>> 0;
  };
  for (let round = 0; round < 12; round += 1) next();
  return next;
}
