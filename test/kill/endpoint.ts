/**
 * A client that is killed or survives. Arguments: `anchor` or `client`, socket path, account file,
 * address, port.
 *
 * An anchor listens, prints its port, and talks to each client that connects, until its daemon is
 * gone. A client connects, prints `running` once messages flow in both directions, and talks until
 * the other end or its daemon is gone, or until it reads `end` on standard input. Both print a line
 * of JSON after each conversation.
 */
import { Access } from '#contract/verbs/enums';
import type { MR, Provider } from '#contract/verbs/provider';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { encodeRegion, parseRegion } from '../support/daemon-region.ts';
import { Conversation, DEPTHS, MEMORY_BYTES } from './conversation.ts';
import { Ledger } from './ledger.ts';

const [role = '', socketPath = '', accountPath = '', host = '', port = ''] = process.argv.slice(2);
const RIGHTS = Access.localWrite | Access.remoteWrite;

function print(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Runs a conversation, prints how it ended, and closes. */
async function converse(
  remote: { address: bigint; rkey: number },
  connection: Connection,
  mr: MR,
  conversation: Conversation,
  ledger: Ledger,
): Promise<void> {
  let how = 'lost';
  try {
    how = (await conversation.run(connection, remote)) ? 'farewell' : 'flushed';
    if (how === 'farewell' && role === 'anchor') await connection.disconnected();
  } catch (error) {
    how = error instanceof Error ? error.message : String(error);
  }
  ledger.write();
  print({ ended: how, at: Date.now(), sent: ledger.sent, received: ledger.received });
  await connection.close();
  await mr.close();
}

async function anchor(provider: Provider): Promise<void> {
  const context = await provider.open();
  const pd = await context.allocPD();
  const listener = await listen(provider, { host });
  print({ port: listener.address.port });
  for await (const request of listener) {
    const mr = await pd.allocMR(MEMORY_BYTES, RIGHTS);
    const ledger = new Ledger(accountPath);
    const conversation = new Conversation(mr, ledger);
    const remote = parseRegion(request.privateData);
    try {
      const connection = await request.accept({
        pd,
        ...DEPTHS,
        privateData: encodeRegion(mr),
        prepare: (parts) => conversation.prepare(parts),
      });
      await converse(remote, connection, mr, conversation, ledger);
    } catch {
      // The other end died before the connection was established.
      await mr.close().catch(() => undefined);
    }
    ledger.close();
  }
}

async function client(provider: Provider): Promise<void> {
  const context = await provider.open();
  const pd = await context.allocPD();
  const mr = await pd.allocMR(MEMORY_BYTES, RIGHTS);
  const ledger = new Ledger(accountPath);
  const conversation = new Conversation(mr, ledger);
  conversation.onRunning = () => {
    conversation.onRunning = () => undefined;
    print({ running: true });
  };
  const connection = await connect(provider, {
    host,
    port: Number(port),
    pd,
    ...DEPTHS,
    privateData: encodeRegion(mr),
    prepare: (parts) => conversation.prepare(parts),
  });
  process.stdin.once('data', () => conversation.end());
  const remote = parseRegion(connection.established.privateData);
  await converse(remote, connection, mr, conversation, ledger);
}

// The daemon was killed: expected, and nothing is left to do.
const provider = await connectDaemon({ socketPath });
try {
  await (role === 'anchor' ? anchor(provider) : client(provider));
  await provider.close();
} catch (error) {
  print({ failed: String(error), at: Date.now() });
}
process.exit(0);
