/** Kinds of lines that `iwarpd trace` prints, and the daemon's topics for each. */
import { InvalidArgumentError } from 'commander';
import type { TapTopic } from '#contract/protocol/tap-records';

/** Selectable kinds; undecodable bytes of a link are shown with any kind of wire record. */
export const TRACE_KINDS = ['wqe', 'cqe', 'mpa', 'fpdu', 'packet', 'end', 'refusal'] as const;
export type ChosenKind = (typeof TRACE_KINDS)[number];

/** Parses `KIND[,KIND]…`. Throws `InvalidArgumentError` that lists the valid kinds. */
export function parseTraceKinds(text: string): ChosenKind[] {
  return text.split(',').map((word) => {
    const kind = TRACE_KINDS.find((each) => each === word);
    if (kind !== undefined) return kind;
    throw new InvalidArgumentError(`must be a comma-separated list of ${TRACE_KINDS.join(', ')}`);
  });
}

/** The topics to watch for these kinds. */
export function topicsOf(kinds: readonly ChosenKind[]): TapTopic[] {
  const topics = kinds.map((kind): TapTopic => {
    if (kind === 'wqe') return 'posted';
    if (kind === 'packet') return 'packets';
    if (kind === 'refusal') return 'refusals';
    return kind === 'cqe' ? 'completed' : 'links';
  });
  return [...new Set(topics)];
}
