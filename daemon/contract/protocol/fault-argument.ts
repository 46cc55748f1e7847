/** Checks a fault given as an argument: only its kind, since the daemon checks the other fields. */
import { described, type Kind, nearest, PLAIN_FIELDS } from '../verbs/arguments.ts';
import { FAULT_KINDS } from './faults.ts';

const WANTS = 'a kind of fault';
const KINDS = Object.keys(FAULT_KINDS);

/** A fault of a known kind. */
export const FAULT_SPEC: Kind = {
  wants: 'an object with kind',
  optional: false,
  refusal(value, name) {
    const refused = PLAIN_FIELDS.refusal(value, name);
    if (refused !== undefined) return refused;
    const { kind } = value as { readonly kind?: unknown };
    if (kind === undefined) return `${name}.kind is required: ${WANTS}, one of ${KINDS.join(', ')}`;
    const word = typeof kind === 'string' ? kind : '';
    if (Object.hasOwn(FAULT_KINDS, word)) return undefined;
    const near = nearest(word, KINDS);
    const advice = near === undefined ? `there are ${KINDS.join(', ')}` : `did you mean '${near}'?`;
    return `${name}.kind must be ${WANTS}, not ${described(kind)}; ${advice}`;
  },
};
