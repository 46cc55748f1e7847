/** A server that answers each message in capitals, and a client, on an RNIC in this process. */
import { connect, type Listener, listen } from 'iwarpd';
import { createEmbedded } from 'iwarpd/embedded';

const HOST = '127.0.0.1';

/** Serves one client until it closes the connection. */
async function serve(listener: Listener): Promise<void> {
  await using connection = await listener.accept({ messages: true });
  for await (const message of connection.messages()) {
    await connection.send(Buffer.from(message).toString().toUpperCase());
  }
}

// `await connectDaemon()` from 'iwarpd' uses the devices of a running daemon instead.
await using rnic = await createEmbedded();
await using listener = await listen(rnic, { host: HOST });
const serving = serve(listener);

const connection = await connect(rnic, {
  host: HOST,
  port: listener.address.port,
  messages: true,
  timeoutMs: 5000,
});
const answers = connection.messages({ timeoutMs: 5000 });
for (const word of ['hello', 'over', 'RDMA']) {
  await connection.send(word);
  const { value: answer } = await answers.next();
  console.log(`${word} -> ${Buffer.from(answer ?? []).toString()}`);
}
await connection.close();
await serving;
