/**
 * A client that accepts connections; their peers write into its memory, which the daemon accesses
 * by process_vm or through the client's agent. It does nothing else: tests stop it.
 * Argument: socket path. Prints its port.
 */
import { Access } from '#contract/verbs/enums';
import { listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { encodeRegion, REGION_BYTES } from '../support/daemon-region.ts';

const [socketPath = ''] = process.argv.slice(2);
const provider = await connectDaemon({ socketPath });
const context = await provider.open();
const pd = await context.allocPD();
const own = await pd.regMR(new Uint8Array(REGION_BYTES), Access.localWrite | Access.remoteWrite);
const listener = await listen(provider, { host: '127.0.0.1' });
process.stdout.write(`listens on ${listener.address.port} as ${process.pid}\n`);
for await (const request of listener) {
  await request.accept({ pd, privateData: encodeRegion(own) });
}
