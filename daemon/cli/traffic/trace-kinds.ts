/** Kinds of lines that `iwarpd trace` prints, and what the daemon has to tell for each. */
import { InvalidArgumentError } from 'commander';
import type { TapTopic } from '../../../verbs-api/contract/tap-records.ts';

/** Kinds that can be chosen; what cannot be read of a link is told with all that pass there. */
export const TRACE_KINDS = ['wqe', 'cqe', 'mpa', 'fpdu', 'end'] as const;
export type ChosenKind = (typeof TRACE_KINDS)[number];

/** Parses `KIND[,KIND]…`. Throws `InvalidArgumentError` that says what is allowed. */
export function parseTraceKinds(text: string): ChosenKind[] {
  return text.split(',').map((word) => {
    const kind = TRACE_KINDS.find((each) => each === word);
    if (kind !== undefined) return kind;
    throw new InvalidArgumentError(`Kinds are ${TRACE_KINDS.join(', ')}, with commas between.`);
  });
}

/** What the daemon has to tell for these kinds. */
export function topicsOf(kinds: readonly ChosenKind[]): TapTopic[] {
  const topics = kinds.map((kind): TapTopic => {
    if (kind === 'wqe') return 'posted';
    return kind === 'cqe' ? 'completed' : 'links';
  });
  return [...new Set(topics)];
}
