/**
 * Notes what the event loop works on, for the watch over long turns (`daemon/main/turn-watch.ts`). Costs
 * two stores for each piece of work, which nothing reads in a daemon without that watch.
 */

/** The work that started last in this turn. */
export const turnNote = { what: '', number: 0 };

/** Notes that `what` starts; `number` identifies one of its kind. */
export function noteWork(what: string, number = 0): void {
  turnNote.what = what;
  turnNote.number = number;
}
