/** Makes the kernel peer's image ahead of the suites, and reports the result. */
import { prepareKernelPeer } from './kernel-image.ts';

console.error('kernel peer: finds its image, or makes it: 250 MB of downloads, the first time');
try {
  const { kernel } = await prepareKernelPeer();
  console.error(`kernel peer: ready (${kernel})`);
} catch (error) {
  console.error(`kernel peer: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
