/** What the helpers of tests take. */
import {
  FUNCTION,
  kind,
  memberOf,
  objectWith,
  optional,
  PLAIN_FIELDS,
  takes,
} from '../contract/verbs/arguments.ts';
import { AsyncEventType } from '../contract/verbs/enums.ts';
import { WAIT_OPTIONS } from './waiting.ts';

const WHERE = kind(
  'the location of a daemon (socketPath, instance, url), a DaemonControl or an embedded provider',
  (value) => typeof value === 'object' && value !== null,
);

/** Checks the arguments of helpers; throws EINVAL. */
export const checkTesting = {
  asyncEventLog: takes('asyncEventLog', { context: objectWith('a context', 'asyncEvents') }),
  next: takes('next', { type: memberOf(AsyncEventType, 'AsyncEventType'), options: WAIT_OPTIONS }),
  withFault: takes('withFault', { spec: PLAIN_FIELDS, body: FUNCTION, where: optional(WHERE) }),
} as const;
