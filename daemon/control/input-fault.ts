/** What is wrong with an input that a schema refused, as a person would say it. */
import type { z } from 'zod';

/** The first fault of an input. */
export interface InputFault {
  /** Path of the field, like `devices.0.name`; '' for the input as a whole. */
  readonly field: string;
  /** One line. */
  readonly reason: string;
}

type Issue = z.core.$ZodIssue;

/**
 * The first fault. Where an input could have been one of several things, it is judged as the one
 * that it is nearest to: fewest faults.
 */
export function inputFault(error: z.ZodError): InputFault {
  const { path, issue } = nearest(error.issues, []);
  if (issue === undefined) return { field: '', reason: 'not understood' };
  if (issue.code !== 'unrecognized_keys') return { field: path.join('.'), reason: issue.message };
  return {
    field: [...path, ...issue.keys.slice(0, 1)].join('.'),
    reason: 'there is no such field',
  };
}

/** Follows unions down to a fault that is no union's. */
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
