/** One-sided operations: a client writes into, reads from and counts in memory of a server. */
import { Access, connect, listen, parseRemoteMemory } from 'iwarpd';
import { createEmbedded } from 'iwarpd/embedded';

const HOST = '127.0.0.1';

await using rnic = await createEmbedded();
await using listener = await listen(rnic, { host: HOST });
const [server, client] = await Promise.all([
  listener.accept({ messages: true }),
  connect(rnic, { host: HOST, port: listener.address.port, messages: true }),
]);

// The server registers memory and sends its location to the client.
const region = await server.pd.allocMR(
  64,
  Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic,
);
await server.send(JSON.stringify(region.export()));

// From here on, the server's program takes no part.
const { value: message } = await client.messages().next();
const remote = parseRemoteMemory(message);
await client.write(remote, Buffer.from('written'), { offset: 8 });
const bytes = await client.read(remote, 7, { offset: 8 });
console.log(`read back: ${Buffer.from(bytes).toString()}`);

await client.fetchAdd(remote, 5);
const before = await client.compareSwap(remote, 5, 42);
const now = Buffer.from(region.buffer).readBigUInt64LE();
console.log(`the counter was ${before} and is ${now}`);

await client.close();
await server.close();
