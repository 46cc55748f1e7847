/**
 * What serves clients of the verbs and watchers, in one value: a daemon loads it once it is ready,
 * and is ready sooner.
 */
import { ControlClient } from './control-client.ts';
import { parseTapFilter, TapStream } from './tap-stream.ts';

export const CLIENT_PARTS = { ControlClient, TapStream, parseTapFilter } as const;

/** The type of `CLIENT_PARTS`, which does not load it. */
export type ClientParts = typeof CLIENT_PARTS;
