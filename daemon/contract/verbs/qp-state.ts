/**
 * The states of a queue pair and their transitions, as data.
 *
 * The names are the verbs', the meaning is iWARP's. In RESET, INIT and RTR the QP is idle, with or
 * without a stream being set up. A connection moves it to RTS; a consumer's modify cannot. SQD closes:
 * posted work is sent, then the stream sends FIN. SQE is the state around a Terminate. ERR is flushed.
 */
import { QPState } from './enums.ts';

/** The effect of a legal request. */
export type QPAction =
  /** Already in this state. */
  | 'none'
  /** Only the state changes. */
  | 'set'
  /** Drops the stream and all work, without completions. */
  | 'reset'
  /** Sends posted work, then closes gracefully. */
  | 'drain'
  /** Sends a Terminate, flushes, closes. */
  | 'terminate'
  /** Drops the stream and flushes. */
  | 'flush';

/** The consumer's requests: current state, requested state, action. Others fail with EINVAL. */
const QP_TRANSITIONS: Readonly<Record<QPState, Readonly<Partial<Record<QPState, QPAction>>>>> = {
  [QPState.RESET]: {
    [QPState.RESET]: 'reset',
    [QPState.INIT]: 'set',
    [QPState.ERR]: 'flush',
  },
  [QPState.INIT]: {
    [QPState.RESET]: 'reset',
    [QPState.INIT]: 'none',
    [QPState.RTR]: 'set',
    [QPState.ERR]: 'flush',
  },
  [QPState.RTR]: {
    [QPState.RESET]: 'reset',
    [QPState.RTR]: 'none',
    [QPState.ERR]: 'flush',
  },
  [QPState.RTS]: {
    [QPState.RESET]: 'reset',
    [QPState.RTS]: 'none',
    [QPState.SQD]: 'drain',
    [QPState.SQE]: 'terminate',
    [QPState.ERR]: 'flush',
  },
  [QPState.SQD]: {
    [QPState.RESET]: 'reset',
    [QPState.SQD]: 'none',
    [QPState.ERR]: 'flush',
  },
  [QPState.SQE]: {
    [QPState.RESET]: 'reset',
    [QPState.SQE]: 'none',
    [QPState.ERR]: 'flush',
  },
  [QPState.ERR]: {
    [QPState.RESET]: 'reset',
    [QPState.ERR]: 'none',
  },
};

/** The action for a consumer's request, or undefined when it is not legal. */
export function qpAction(current: QPState, requested: QPState): QPAction | undefined {
  return QP_TRANSITIONS[current]?.[requested];
}

/** True while the QP is idle: a stream may be attached and connected. */
export function isIdle(state: QPState): boolean {
  return state === QPState.RESET || state === QPState.INIT || state === QPState.RTR;
}

/** True once work is flushed instead of executed. */
export function isFlushing(state: QPState): boolean {
  return state === QPState.SQE || state === QPState.ERR;
}

const STATE_NAMES = new Map<QPState, string>(
  Object.entries(QPState).map(([name, state]) => [state, name]),
);

export function qpStateName(state: QPState): string {
  return STATE_NAMES.get(state) ?? String(state);
}
