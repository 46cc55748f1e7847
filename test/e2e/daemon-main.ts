/** A daemon in a separate process, started with the options in its argument (JSON). */
import { startDaemon, stopOnSignals } from '../../daemon/main/daemon.ts';
import { createLog } from '../../daemon/main/log.ts';

const log = createLog('info');
const daemon = await startDaemon(JSON.parse(process.argv[2] ?? '{}'), { log });
process.stdout.write(`${JSON.stringify(daemon.ready)}\n`);
await stopOnSignals(daemon, log);
process.exit(0);
