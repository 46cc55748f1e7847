/** Numbers of errors, from Node.js and so independent of the table under test. */
import { constants } from 'node:os';

type ErrnoName = keyof typeof constants.errno;

/** As the kernel returns them: negative. */
export const NEGATIVE_ERRNO = Object.fromEntries(
  Object.entries(constants.errno).map(([name, number]) => [name, -number]),
) as Readonly<Record<ErrnoName, number>>;
