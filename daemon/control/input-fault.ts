/** Describes the first error of an input that a schema rejected, in plain English. */

import type { z } from 'zod';
import { listed } from '#base/listed';

export interface InputFault {
  /** Path of the field, such as `devices.0.name`; '' for the whole input. */
  readonly field: string;
  readonly reason: string;
}

type Issue = z.core.$ZodIssue;

const TYPE_NAMES: Readonly<Record<string, string>> = {
  int: 'a whole number',
  number: 'a number',
  string: 'a string',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
};
const UNKNOWN_FIELD = 'unknown field';
const UNITS: Readonly<Record<string, string>> = { string: ' characters long', array: ' entries' };

/** Errors that a message names besides the first. More may follow once those are fixed. */
const MORE_FAULTS_MAX = 9;

/** All errors, each field once, up to ten. */
export function inputFaults(error: z.ZodError): readonly InputFault[] {
  const faults = error.issues.flatMap((issue) => {
    const { path, issue: near } = nearest([issue], []);
    if (near?.code !== 'unrecognized_keys') return [inputFault({ issues: [issue] })];
    return near.keys.map((key) => ({ field: [...path, key].join('.'), reason: UNKNOWN_FIELD }));
  });
  return faults.slice(0, 1 + MORE_FAULTS_MAX);
}

/**
 * The first error. If the input matches none of several alternatives, the error is that of the
 * closest one, with the fewest errors.
 */
export function inputFault(error: Pick<z.ZodError, 'issues'>): InputFault {
  const { path, issue } = nearest(error.issues, []);
  if (issue === undefined) return { field: '', reason: 'not understood' };
  if (issue.code !== 'unrecognized_keys') return { field: path.join('.'), reason: reasonOf(issue) };
  return {
    field: [...path, ...issue.keys.slice(0, 1)].join('.'),
    reason: UNKNOWN_FIELD,
  };
}

/** The expected value; replaces zod's wording of type errors. */
function reasonOf(issue: Issue): string {
  switch (issue.code) {
    case 'invalid_value':
      return `must be ${listed(issue.values.map(String), 'or')}`;
    case 'invalid_type':
      return issue.input === undefined && issue.message.endsWith('received undefined')
        ? 'is required'
        : `must be ${TYPE_NAMES[issue.expected] ?? issue.expected}`;
    case 'too_small':
    case 'too_big': {
      const [limit, word] =
        issue.code === 'too_small' ? [issue.minimum, 'at least'] : [issue.maximum, 'at most'];
      const unit = UNITS[issue.origin] ?? '';
      if (issue.inclusive !== false) return `must be ${word} ${limit}${unit}`;
      return `must be ${issue.code === 'too_small' ? 'greater' : 'less'} than ${limit}${unit}`;
    }
    default:
      return issue.message;
  }
}

/** Descends through unions to an error that is not a union's. */
function nearest(
  issues: readonly Issue[],
  above: readonly PropertyKey[],
): { path: readonly string[]; issue: Issue | undefined } {
  const issue = issues[0];
  const path = [...above, ...(issue?.path ?? [])];
  if (issue?.code === 'invalid_union') {
    const [branch] = issue.errors
      .filter((each) => each.length > 0)
      .sort((one, other) => one.length - other.length);
    if (branch !== undefined) return nearest(branch, path);
  }
  return { path: path.map(String), issue };
}
