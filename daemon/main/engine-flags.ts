/** How V8 compiles the daemon's code, and how much memory it takes beforehand. */
import { setFlagsFromString } from 'node:v8';

/**
 * Bytecode that V8 inlines into one optimized function, in bytes; its default is 920. The path of a
 * message goes through many small methods of many layers, and its loops call all of them: with the
 * default, most stay calls. With twice as much again V8 compiles for longer: the first two programs
 * of a daemon that write 1 GiB then take a seventh more time, and later messages are no faster.
 */
const INLINED_BYTECODE_MAX_BYTES = 2000;

/**
 * Lets V8 inline more of the path of a message: up to a tenth more messages of 64 bytes. For the
 * daemon's own process only, since flags apply to all code in it; call it before there is traffic.
 * An engine without the flag prints a line about it and goes on.
 */
export function inlineWholePaths(): void {
  setFlagsFromString(`--max-inlined-bytecode-size-cumulative=${INLINED_BYTECODE_MAX_BYTES}`);
}

/** Factor by which V8's young generation grows; its default is 2, up to 16 MiB for each half. */
const YOUNG_GENERATION_GROWTH = 1;

/**
 * Keeps V8's young generation at its first MiB. It grows when many objects survive, as those of
 * connections do: a thousand of them once cost another 16 MiB, which the daemon never gave back.
 * Traffic leaves few objects. Connections take 1 to 3 % more processor time.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString(`--semi-space-growth-factor=${YOUNG_GENERATION_GROWTH}`);
}
