import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { pattern } from '../support/pattern.ts';
import {
  completions,
  connectedPair,
  DEVICE,
  send,
  verbsError,
} from '../support/provider-fixture.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

async function daemonWithPair() {
  const directory = temporaryFolder();
  const socketPath = join(directory, 'socket');
  const devices = [{ name: DEVICE.name, addresses: [...DEVICE.addresses] }];
  const daemon = await startDaemon({ socketPath, devices, logLevel: 'silent' });
  const provider = await connectDaemon({ socketPath });
  const pair = await connectedPair({
    server: provider,
    client: provider,
    stop: async () => undefined,
  });
  return { directory, daemon, provider, pair };
}

it('fails pending calls with EIO when the daemon dies; polls still return delivered completions', async () => {
  const { directory, daemon, provider, pair } = await daemonWithPair();
  const { server, client } = pair;
  server.connection.qp.postRecv({ wrId: 7, sgList: [server.mr.sge()] });
  client.mr.buffer.set(pattern(100));
  client.connection.qp.postSend(send([client.mr.sge(0, 100)]));
  await completions(client.connection.cq);
  const channel = await client.context.createCompChannel();
  const listening = await provider.createId();
  await listening.listen();
  const waits = [
    client.connection.cq.wait(),
    client.connection.disconnected(),
    channel.nextEvent(),
    listening.nextEvent(),
    client.context.asyncEvents()[Symbol.asyncIterator]().next(),
  ];
  await daemon.stop();
  const outcomes = await Promise.allSettled(waits);
  for (const outcome of outcomes.slice(2)) {
    expect(outcome).toEqual({ status: 'rejected', reason: verbsError('EIO') });
  }
  // The receive completed before the daemon went; its bytes are in memory that outlives it.
  expect(server.connection.cq.poll(1)).toMatchObject([{ wrId: 7n, byteLen: 100 }]);
  expect(server.mr.buffer.subarray(0, 100)).toEqual(pattern(100));
  expect(() => client.connection.qp.postSend(send([]))).toThrow(verbsError('EIO'));
  await expect(client.pd.allocMR(8, Access.localWrite)).rejects.toEqual(verbsError('EIO'));
  await expect(provider.devices()).rejects.toEqual(verbsError('EIO'));
  await expect(connectDaemon({ socketPath: join(directory, 'socket') })).rejects.toThrow(/start/);
  await pair[Symbol.asyncDispose]();
  await provider.close();
  await provider.close();
});

it('takes everything down with the provider, and leaves the daemon to the others', async () => {
  const { directory, daemon, provider, pair } = await daemonWithPair();
  const other = await connectDaemon({ socketPath: join(directory, 'socket') });
  expect((await daemon.status()).clients).toHaveLength(2);
  await provider.close();
  const { clients: left } = await daemon.status();
  expect(left).toHaveLength(1);
  expect(left[0]?.usage.objects).toMatchObject({ qp: 0, mr: 0, id: 0, context: 0 });
  expect(daemon.host.connections()).toEqual([]);
  expect(await other.devices()).toHaveLength(1);
  await expect(pair.client.pd.allocMR(8, Access.localWrite)).rejects.toEqual(verbsError('EINVAL'));
  await other.close();
  await daemon.stop();
});
