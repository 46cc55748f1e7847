/** A test with `node --test`: a client notices that its peer's connection is reset. */
import assert from 'node:assert';
import { after, before, test } from 'node:test';
import { connect, listen } from 'iwarpd';
import { type PrivateDaemon, startPrivateDaemon, withFault } from 'iwarpd/testing';

let daemon: PrivateDaemon;

before(async () => {
  daemon = await startPrivateDaemon();
});

after(async () => {
  // Fails if a test left something open.
  await daemon.reset();
  await daemon.stop();
});

test('a message arrives', async () => {
  await using provider = await daemon.connect();
  await using listener = await listen(provider, { host: '127.0.0.3' });
  const [server, client] = await Promise.all([
    listener.accept({ messages: true }),
    connect(provider, { host: '127.0.0.3', port: listener.address.port, messages: true }),
  ]);
  await client.send('hello');
  const { value: message } = await server.messages({ timeoutMs: 2000 }).next();
  assert.equal(Buffer.from(message ?? []).toString(), 'hello');
  await client.close();
  await server.close();
});

test('a reset of TCP ends the connection', async () => {
  await using provider = await daemon.connect();
  await using listener = await listen(provider, { host: '127.0.0.3' });
  const [server, client] = await Promise.all([
    listener.accept({ messages: true }),
    connect(provider, { host: '127.0.0.3', port: listener.address.port, messages: true }),
  ]);
  await withFault(
    { kind: 'reset', device: 'left', direction: 'out', afterBytes: 0 },
    async ({ status }) => {
      // The device may take the message before TCP is reset: a completed send does not prove that
      // the message arrived.
      await client.send('lost').catch(() => {});
      await client.disconnected({ timeoutMs: 2000 });
      assert.equal((await status()).fired, 1);
    },
    daemon,
  );
  await client.close();
  await server.close();
});
