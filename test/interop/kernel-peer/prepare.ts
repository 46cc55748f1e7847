/** Makes the kernel peer's image ahead of the suites, and says what came of it in one line. */
import { prepareKernelPeer } from './kernel-image.ts';

try {
  const { kernel } = await prepareKernelPeer();
  console.error(`kernel peer: ready (${kernel})`);
} catch (error) {
  console.error(`kernel peer: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
