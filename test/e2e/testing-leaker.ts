/** A program that leaks: it registers memory and waits. Argument: socket path. */
import { Access } from '#contract/verbs/enums';
import { connectDaemon } from '#verbs-api/connect-daemon';

const [socketPath = ''] = process.argv.slice(2);
const provider = await connectDaemon({ socketPath });
const pd = await (await provider.open()).allocPD();
await pd.allocMR(4321, Access.localWrite);
console.log('holding');
setInterval(() => undefined, 1000);
