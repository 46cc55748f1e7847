/**
 * A daemon in a separate process, started with the options in its argument (JSON). SIGUSR2 makes
 * it collect all garbage.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { startDaemon, stopOnSignals } from '#daemon/main/daemon';
import { createLog } from '#daemon/main/log';
import { watchTurns } from '#daemon/main/turn-watch';

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');
process.on('SIGUSR2', () => collectGarbage());

const log = createLog('info');
const daemon = await startDaemon(JSON.parse(process.argv[2] ?? '{}'), {
  log,
  onLoaded: () => {
    watchTurns();
    process.stdout.write('loaded\n');
  },
});
process.stdout.write(`${JSON.stringify(daemon.ready)}\n`);
await stopOnSignals(daemon, log);
process.exit(0);
