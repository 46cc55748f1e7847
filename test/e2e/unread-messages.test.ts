/** A peer without credits that keeps sending to a program that does not read. */
import { expect, it } from 'vitest';
import { WROpcode } from '#contract/verbs/enums';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { connect, listen } from '#verbs-api/connect';
import { patient } from '../support/patience.ts';

const WINDOW = 2;
/** Messages that the program keeps as copies, and messages that occupy their receives. */
const KEPT_COUNT = 1024 + WINDOW;

it('keeps a bounded number of unread messages, then ends the connection', async () => {
  await using provider = await createEmbedded({
    devices: [{ name: 'a', addresses: ['127.0.0.1'] }],
  });
  await using listener = await listen(provider, { host: '127.0.0.1' });
  const accepting = listener.accept({ messages: false });
  const { port } = listener.address;
  const messages = { credits: false, window: WINDOW, bytes: 8 };
  await using client = await connect(provider, { host: '127.0.0.1', port, messages });
  await using server = await accepting;
  let sent = 0;
  for (let failed = false; !failed && sent < 2 * KEPT_COUNT; ) {
    const wrId = BigInt(sent);
    server.qp.postSend({ opcode: WROpcode.send, wrId, inlineData: Buffer.from('x') });
    const [wc] = await server.cq.wait({ signal: patient() });
    failed = wc?.status !== 0;
    sent += 1;
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(sent).toBeLessThan(2 * KEPT_COUNT);
  let taken = 0;
  const read = async (): Promise<void> => {
    for await (const message of client.messages()) taken += message.length;
  };
  await expect(read()).rejects.toThrow();
  expect(taken).toBe(KEPT_COUNT);
});
