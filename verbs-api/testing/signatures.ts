/** Parameters of the helpers of tests. */
import { FAULT_SPEC } from '#contract/protocol/fault-argument';
import {
  FUNCTION,
  isPlain,
  type Kind,
  kind,
  memberOf,
  objectWith,
  optional,
  takes,
} from '#contract/verbs/arguments';
import { AsyncEventType } from '#contract/verbs/enums';
import { LOCATION } from '../client/daemon-control.ts';
import { WAIT_OPTIONS } from './waiting.ts';

const CONTROL = objectWith('a control of faults', 'addFault', 'faults', 'removeFault');
/** A `PrivateDaemon` has a socket path, too. */
const PLACE = kind(
  'the location of a daemon (socketPath, instance, url), a DaemonControl or an embedded provider',
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    (isPlain(value) || typeof Reflect.get(value, 'socketPath') === 'string'),
);
const WHERE: Kind = {
  ...PLACE,
  refusal(value, name) {
    if (CONTROL.refusal(value, name) === undefined) return undefined;
    return PLACE.refusal(value, name) ?? LOCATION.refusal(value, name);
  },
};

/** Checks the arguments of helpers; throws EINVAL. */
export const checkTesting = {
  asyncEventLog: takes('asyncEventLog', { context: objectWith('a context', 'asyncEvents') }),
  next: takes('next', { type: memberOf(AsyncEventType, 'AsyncEventType'), options: WAIT_OPTIONS }),
  withFault: takes('withFault', { spec: FAULT_SPEC, body: FUNCTION, where: optional(WHERE) }),
} as const;
