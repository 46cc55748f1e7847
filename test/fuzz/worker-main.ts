/** A worker's program, started by `long-run.ts`. */
import { runWorkerProcess } from './worker.ts';

runWorkerProcess(process.argv[2] ?? '');
