/** Bundles the command into `dist/daemon/command`; called by `.ci/setup`. */
import { bundleCommand } from './bundle.ts';

await bundleCommand();
