/** How the native `wr_id` of a request is made: its number in its queue, and which queue it is. */

/** Requests that are posted, and completions that are taken, with one call. */
export const BATCH = 64;

/** Lowest bit of the native `wr_id`: a receive. A completion in error does not tell its opcode. */
export const RECEIVE_BIT = 1;

/** Where a completion belongs. */
export interface RequestNumber {
  readonly receive: boolean;
  readonly number: number;
}

/** Takes a native `wr_id` apart; all of ours are exact as numbers. */
export function requestNumber(wrId: bigint): RequestNumber {
  const number = Number(wrId);
  const receive = number % 2 === RECEIVE_BIT;
  return { receive, number: (number - (receive ? RECEIVE_BIT : 0)) / 2 };
}
