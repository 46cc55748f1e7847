import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { Access, connect, listen, parseRemoteMemory } from '#verbs-api/index';

/** The first example of verbs-api/README.md; `awaited-example.test.ts` verifies that they are equal. */
export async function example(console: { log(text: string): void }): Promise<void> {
  await using rnic = await createEmbedded();
  await using listener = await listen(rnic, { host: '127.0.0.1' });
  const accepting = listener.accept({ messages: true });
  const { port } = listener.address;
  await using client = await connect(rnic, { host: '127.0.0.1', port, messages: true });
  await using server = await accepting;

  const mr = await server.pd.allocMR(32, Access.localWrite | Access.remoteWrite);
  await server.send(JSON.stringify(mr.export()));
  for await (const message of client.messages()) {
    await client.write(parseRemoteMemory(message), Buffer.from('hello over iWARP'));
    await client.send('written');
    break;
  }
  for await (const message of server.messages()) {
    console.log(`${Buffer.from(message)}: ${Buffer.from(mr.buffer.subarray(0, 16))}`);
    break;
  }
}
