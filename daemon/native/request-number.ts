/** The native `wr_id` of a request: its number in its queue, and the kind of queue. */

/** Maximum requests posted, and completions taken, by one call. */
export const BATCH = 64;

/** Lowest bit of the native `wr_id`: set for receives, since a failed completion has no opcode. */
export const RECEIVE_BIT = 1;

interface RequestNumber {
  readonly receive: boolean;
  readonly number: number;
}

/** Splits a native `wr_id`. Those that we post are exact as numbers. */
export function requestNumber(wrId: bigint): RequestNumber {
  const number = Number(wrId);
  const receive = number % 2 === RECEIVE_BIT;
  return { receive, number: (number - (receive ? RECEIVE_BIT : 0)) / 2 };
}
