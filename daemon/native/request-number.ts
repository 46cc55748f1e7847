/** The native `wr_id` of a request: its number in its queue, and the kind of queue. */

/** Requests to post, and completions to take, by one call. */
export const BATCH = 64;

/** Lowest bit of the native `wr_id`: a receive. A failed completion does not contain its opcode. */
export const RECEIVE_BIT = 1;

interface RequestNumber {
  readonly receive: boolean;
  readonly number: number;
}

/** Splits a native `wr_id`; all of ours are exact as numbers. */
export function requestNumber(wrId: bigint): RequestNumber {
  const number = Number(wrId);
  const receive = number % 2 === RECEIVE_BIT;
  return { receive, number: (number - (receive ? RECEIVE_BIT : 0)) / 2 };
}
