/** Receives the effects of a NIC's objects; each class declares its own. */
import type { AsyncEventType } from '#contract/verbs/enums';

export interface EffectSink<Effect> {
  push(effect: Effect): void;
}

/** An asynchronous event (`ibv_async_event`) of one object. */
export interface AsyncEffect<NicObject> {
  readonly type: 'async';
  readonly event: AsyncEventType;
  readonly object: NicObject;
  readonly text: string;
}
