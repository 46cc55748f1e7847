/** A program that gives nothing back: it registers memory and waits. Argument: socket path. */
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { Access } from '../../verbs-api/contract/verbs/enums.ts';

const [socketPath = ''] = process.argv.slice(2);
const provider = await connectDaemon({ socketPath });
const pd = await (await provider.open()).allocPD();
await pd.allocMR(4321, Access.localWrite);
console.log('holding');
setInterval(() => undefined, 1000);
