/** V8 flags for compilation and memory of the daemon. */
import { setFlagsFromString } from 'node:v8';

/**
 * Maximum bytecode that V8 inlines into one optimized function, in bytes; its default is 920. A message
 * passes through many small methods of many layers, called in loops; with the default, V8 inlines few of
 * them. With twice this value, V8 takes longer to compile: the first two programs of a daemon that write
 * 1 GiB take a seventh more time, and later messages are no faster.
 */
const INLINED_BYTECODE_MAX_BYTES = 2000;

/**
 * Lets V8 inline more of the path of a message: up to a tenth more messages of 64 bytes. Only for
 * the daemon's own process, since flags apply to all code in it; call it before any traffic. An
 * engine without the flag prints a line about it and continues.
 */
export function inlineWholePaths(): void {
  setFlagsFromString(`--max-inlined-bytecode-size-cumulative=${INLINED_BYTECODE_MAX_BYTES}`);
}

/** Factor by which V8's young generation grows; its default is 2, up to 16 MiB for each half. */
const YOUNG_GENERATION_GROWTH = 1;

/**
 * Keeps V8's young generation at its first MiB. It grows when many objects survive, such as those of
 * connections: a thousand of them once cost another 16 MiB, which the daemon never returned. Traffic
 * leaves few objects. The cost: connections take 1 to 3 % more processor time.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString(`--semi-space-growth-factor=${YOUNG_GENERATION_GROWTH}`);
}
