/**
 * One of many concurrent programs, all with the same addresses and port: it sends a message between
 * two nodes of a private daemon, or on a device in this process. Argument: `daemon` or `embedded`.
 */
import { SendFlag, WCOpcode, WROpcode } from '#contract/verbs/enums';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { connect, listen } from '#verbs-api/connect';
import { expectCompletion, startPrivateDaemon, startTwoNodes } from '#verbs-api/testing/index';
import { patience } from '../support/patience.ts';

const PLACE = { host: '127.0.0.1', port: 7174 };

async function onDaemon(): Promise<void> {
  await using daemon = await startPrivateDaemon();
  await using nodes = await startTwoNodes({ daemon });
  const { left, right } = nodes;
  right.qp.postRecv({ sgList: [right.mr.sge()] });
  const sgList = [left.mr.sge(0, 64)];
  left.qp.postSend({ opcode: WROpcode.send, flags: SendFlag.signaled, sgList });
  const received = { opcode: WCOpcode.recv, byteLen: 64 };
  await expectCompletion(right.cq, received, { timeoutMs: patience() });
  await nodes.close();
  await daemon.reset();
}

async function embedded(): Promise<void> {
  await using rnic = await createEmbedded({ network: 'isolated' });
  await using listener = await listen(rnic, PLACE);
  const [server, client] = await Promise.all([
    listener.accept({ messages: true }),
    connect(rnic, { ...PLACE, messages: true }),
  ]);
  await client.send('hello');
  const { value } = await server.messages().next();
  const received = Buffer.from(value ?? []).toString();
  if (received !== 'hello') throw new Error(`received ${received}`);
}

await (process.argv[2] === 'daemon' ? onDaemon() : embedded());
