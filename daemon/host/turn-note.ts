/**
 * Notes what the event loop works on, for those who measure its turns. Costs two loads for each piece of
 * work unless something listens.
 */

/** Those who are told of work; undefined for none. */
interface WorkListeners {
  /** Called with each piece of work that starts; `number` identifies one of its kind. */
  onWork: ((what: string, number: number) => void) | undefined;
  /** Called when any work starts: it removes itself, so that it costs nothing until it is set again. */
  onNext: (() => void) | undefined;
}

export const workListeners: WorkListeners = { onWork: undefined, onNext: undefined };

/** Notes that `what` starts. */
export function noteWork(what: string, number = 0): void {
  workListeners.onNext?.();
  workListeners.onWork?.(what, number);
}

/** The same for work that is frequent and short, which has no name. */
export function noteShortWork(): void {
  workListeners.onNext?.();
}
