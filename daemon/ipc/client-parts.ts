/**
 * The modules that serve clients of the verbs and watchers, in one value: a daemon loads it after it
 * reports ready, to be ready sooner.
 */
import { ControlClient } from './control-client.ts';
import { parseTapFilter, TapStream } from './tap-stream.ts';

export const CLIENT_PARTS = { ControlClient, TapStream, parseTapFilter } as const;

/** The type of `CLIENT_PARTS`, without loading it. */
export type ClientParts = typeof CLIENT_PARTS;
