/**
 * Reports what the event loop works on, for measuring its turns. Costs two loads per piece of work unless
 * something listens.
 */

/** Listeners; undefined for none. */
interface WorkListeners {
  /** Called with each piece of work that starts; `number` identifies one of its kind. */
  onWork: ((what: string, number: number) => void) | undefined;
  /** Called at the start of any work. It removes itself, so that it costs nothing until it is set again. */
  onNext: (() => void) | undefined;
}

export const workListeners: WorkListeners = { onWork: undefined, onNext: undefined };

/** Reports that `what` starts. */
export function noteWork(what: string, number = 0): void {
  workListeners.onNext?.();
  workListeners.onWork?.(what, number);
}

/** The same for frequent, short work, which has no name. */
export function noteShortWork(): void {
  workListeners.onNext?.();
}
