/** A test run that gets killed: it starts a private daemon, reports it, and waits. */
import { startPrivateDaemon } from '#verbs-api/testing/index';

const daemon = await startPrivateDaemon();
const provider = await daemon.connect();
await (await provider.open()).allocPD();
console.log(JSON.stringify({ pid: daemon.pid, socketPath: daemon.socketPath }));
setInterval(() => undefined, 1000);
