/**
 * The states of a queue pair that its program connects, and the attributes that each transition
 * requires and permits, as data.
 *
 * The table is that of Linux's ib_core as rxe shows it (measured bit by bit): alternate paths,
 * capabilities and the request for an SQD event are refused everywhere. For the states of iWARP
 * queue pairs see qp-state.ts.
 */
import { QPState, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { ALL_QP_ATTRIBUTES, QPAttribute } from '#contract/verbs/qp-attributes';
import { qpStateName } from '#contract/verbs/qp-state';
import type { QPModification } from './qp-attributes.ts';

interface Rule {
  readonly required: number;
  readonly optional: number;
}

type Rules = Readonly<Record<QPType, Rule>>;

const A = QPAttribute;
const NONE: Rule = { required: 0, optional: 0 };
const STATE_ALONE: Rules = { [QPType.rc]: NONE, [QPType.uc]: NONE, [QPType.ud]: NONE };

const RESET_TO_INIT: Rules = {
  [QPType.rc]: { required: A.accessFlags | A.pkeyIndex | A.portNum, optional: 0 },
  [QPType.uc]: { required: A.accessFlags | A.pkeyIndex | A.portNum, optional: 0 },
  [QPType.ud]: { required: A.pkeyIndex | A.portNum | A.qkey, optional: 0 },
};

const INIT_TO_INIT: Rules = {
  [QPType.rc]: { required: 0, optional: A.accessFlags | A.pkeyIndex | A.portNum },
  [QPType.uc]: { required: 0, optional: A.accessFlags | A.pkeyIndex | A.portNum },
  [QPType.ud]: { required: 0, optional: A.pkeyIndex | A.portNum | A.qkey },
};

const CONNECTION = A.ahAttr | A.pathMtu | A.rqPsn | A.destQpNum;

const INIT_TO_RTR: Rules = {
  [QPType.rc]: {
    required: CONNECTION | A.minRnrTimer | A.maxDestRdAtomic,
    optional: A.accessFlags | A.pkeyIndex,
  },
  [QPType.uc]: { required: CONNECTION, optional: A.accessFlags | A.pkeyIndex },
  [QPType.ud]: { required: 0, optional: A.pkeyIndex | A.qkey },
};

const RTS_OPTIONAL = {
  [QPType.rc]: A.curState | A.accessFlags | A.minRnrTimer | A.pathMigState,
  [QPType.uc]: A.curState | A.accessFlags | A.pathMigState,
  [QPType.ud]: A.curState | A.qkey,
} as const;

const RTR_TO_RTS: Rules = {
  [QPType.rc]: {
    required: A.timeout | A.retryCnt | A.rnrRetry | A.maxRdAtomic | A.sqPsn,
    optional: RTS_OPTIONAL[QPType.rc],
  },
  [QPType.uc]: { required: A.sqPsn, optional: RTS_OPTIONAL[QPType.uc] },
  [QPType.ud]: { required: A.sqPsn, optional: RTS_OPTIONAL[QPType.ud] },
};

const TO_RTS: Rules = {
  [QPType.rc]: { required: 0, optional: RTS_OPTIONAL[QPType.rc] },
  [QPType.uc]: { required: 0, optional: RTS_OPTIONAL[QPType.uc] },
  [QPType.ud]: { required: 0, optional: RTS_OPTIONAL[QPType.ud] },
};

const SQD_TO_SQD: Rules = {
  [QPType.rc]: {
    required: 0,
    optional:
      A.accessFlags |
      A.pkeyIndex |
      A.portNum |
      A.ahAttr |
      A.timeout |
      A.retryCnt |
      A.rnrRetry |
      A.maxRdAtomic |
      A.minRnrTimer |
      A.maxDestRdAtomic |
      A.pathMigState,
  },
  [QPType.uc]: { required: 0, optional: A.accessFlags | A.pkeyIndex | A.pathMigState },
  [QPType.ud]: { required: 0, optional: A.pkeyIndex | A.qkey },
};

/** Every state except RESET can go to ERR; every state can go to RESET. */
const DOWN = { [QPState.RESET]: STATE_ALONE, [QPState.ERR]: STATE_ALONE } as const;

/** Current state, requested state, attributes. Any other transition is EINVAL. */
const TRANSITIONS: Readonly<Record<QPState, Readonly<Partial<Record<QPState, Rules>>>>> = {
  [QPState.RESET]: { [QPState.RESET]: STATE_ALONE, [QPState.INIT]: RESET_TO_INIT },
  [QPState.INIT]: { ...DOWN, [QPState.INIT]: INIT_TO_INIT, [QPState.RTR]: INIT_TO_RTR },
  [QPState.RTR]: { ...DOWN, [QPState.RTS]: RTR_TO_RTS },
  [QPState.RTS]: { ...DOWN, [QPState.RTS]: TO_RTS, [QPState.SQD]: STATE_ALONE },
  [QPState.SQD]: { ...DOWN, [QPState.RTS]: TO_RTS, [QPState.SQD]: SQD_TO_SQD },
  // Never entered: a failed send leads to ERR, as for every reliable queue pair.
  [QPState.SQE]: DOWN,
  [QPState.ERR]: DOWN,
};

const STEPS = {
  [QPState.INIT]: RESET_TO_INIT,
  [QPState.RTR]: INIT_TO_RTR,
  [QPState.RTS]: RTR_TO_RTS,
} as const;

/** The mask of a step to `next`, with only the required attributes. */
export function stepMask(type: QPType, next: keyof typeof STEPS): number {
  return A.state | STEPS[next][type].required;
}

interface TransitionOf {
  readonly type: QPType;
  readonly state: QPState;
  /** In SQD: some messages are not done yet. */
  readonly draining: boolean;
}

/**
 * The state that `change` leads to. Throws EINVAL if the transition is illegal or an attribute is
 * missing or not permitted, EOPNOTSUPP for an unknown attribute.
 */
export function checkTransition(qp: TransitionOf, change: QPModification): QPState {
  const { type, state, draining } = qp;
  const { mask } = change;
  if ((mask & ~ALL_QP_ATTRIBUTES) !== 0) {
    throw new VerbsError(
      'EOPNOTSUPP',
      `not supported: ${attributeNames(mask & ~ALL_QP_ATTRIBUTES)}`,
    );
  }
  const moves = (mask & A.state) !== 0;
  const next = moves ? change.state : state;
  const rules = next === undefined ? undefined : TRANSITIONS[state][next];
  if (next === undefined || rules === undefined) {
    const to = next === undefined ? 'no state' : qpStateName(next);
    throw invalid(
      `no transition leads from ${qpStateName(state)} to ${to}: the order is RESET, INIT, RTR, RTS`,
    );
  }
  const step = `${qpStateName(state)} to ${qpStateName(next)}`;
  const rule = rules[type];
  const missing = rule.required & ~mask;
  const surplus = mask & ~(rule.required | rule.optional | A.state);
  if (missing !== 0) throw invalid(`${step} needs ${attributeNames(missing)}`);
  if (surplus !== 0) throw invalid(`${step} takes no ${attributeNames(surplus)}`);
  if ((mask & A.curState) !== 0 && change.curState !== state) {
    throw invalid(
      `the QP is in state ${qpStateName(state)}, not in the state that cur_qp_state names`,
    );
  }
  if (moves && draining && next === QPState.RTS) {
    throw invalid('the send queue is still draining: wait for SQ_DRAINED');
  }
  return next;
}

function attributeNames(mask: number): string {
  const named = Object.entries(QPAttribute).filter(([, bit]) => (mask & bit) !== 0);
  const unknown = (mask & ~ALL_QP_ATTRIBUTES) >>> 0;
  const words = named.map(([name]) => name);
  if (unknown !== 0) words.push(`attribute 0x${unknown.toString(16)}`);
  return words.join(', ');
}
