/** Lists of work requests. */

const single: object[] = [];

/** The list, or a reused one with the single request; valid until the next call. */
export function listOf<T extends object>(requests: T | readonly T[]): readonly T[] {
  if (isList(requests)) return requests;
  single[0] = requests;
  return single as T[];
}

function isList<T extends object>(requests: T | readonly T[]): requests is readonly T[] {
  return Array.isArray(requests);
}
