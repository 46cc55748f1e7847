/**
 * What the event loop works on, for the watch over long turns (`daemon/main/turn-watch.ts`). Two stores
 * for each piece of work; nothing reads them in a daemon without that watch.
 */

/** The work that began last in this turn. */
export const turnNote = { what: '', number: 0 };

/** `what` begins; `number` says which of its kind. */
export function noteWork(what: string, number = 0): void {
  turnNote.what = what;
  turnNote.number = number;
}
