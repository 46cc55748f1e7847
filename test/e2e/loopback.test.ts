/** Whether connections within one daemon, or within one program, pass through the kernel. */
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import type { Provider } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { CommandFolder, runCommand } from '../support/cli-process.ts';

const HERE = '127.0.0.4';

const folder = new CommandFolder();
const providers: Provider[] = [];

afterEach(async () => {
  for (const provider of providers.splice(0)) await provider.close();
  await folder.clean();
});

function kernelConnections(port: number): number {
  const digits = `:${port.toString(16).toUpperCase().padStart(4, '0')} `;
  return readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .filter((line) => line.includes(digits) && / 01 /.test(line)).length;
}

/** Connects within `provider`, passes a message each way, and counts packets in the kernel. */
async function seenByKernel(provider: Provider): Promise<number> {
  providers.push(provider);
  await using listener = await listen(provider, { host: HERE });
  const accepting = (async () => {
    for await (const request of listener) return await request.accept({ messages: true });
    throw new Error('the listener has ended');
  })();
  const { port } = listener.address;
  const [left, right] = await Promise.all([
    connect(provider, { host: HERE, port, messages: true }),
    accepting,
  ]);
  const got = right.messages()[Symbol.asyncIterator]().next();
  const answer = left.messages()[Symbol.asyncIterator]().next();
  await left.send('there');
  expect(Buffer.from((await got).value ?? []).toString()).toBe('there');
  await right.send('and back');
  expect(Buffer.from((await answer).value ?? []).toString()).toBe('and back');
  const seen = kernelConnections(port);
  await left.close();
  await right.close();
  return seen;
}

describe('a connection within one daemon', () => {
  it.each([
    ['memory', [], 0],
    ['memory', ['--loopback', 'memory'], 0],
    ['tcp', ['--loopback', 'tcp'], 2],
  ] as const)('uses %s if the daemon is started with %j', async (loopback, words, ends) => {
    const socket = folder.file('d/iwarpd.sock');
    await folder.daemon(socket, ['--device', `a=${HERE}`, ...words]);
    expect(await seenByKernel(await connectDaemon({ socketPath: socket }))).toBe(ends);
    const status = await runCommand(['status', '--json', '--socket', socket]);
    expect(JSON.parse(status.stdout)).toMatchObject({ loopback });
    const doctor = await runCommand(['doctor', '--socket', socket]);
    expect(doctor.stdout).toMatch(loopback === 'tcp' ? /loopback by TCP/ : /loopback by memory/);
  });

  it('rejects an unknown mode', async () => {
    const refused = await runCommand(['start', '--loopback', 'pigeon']);
    expect(refused.stderr).toContain("invalid value 'pigeon' for ");
    expect(refused.status).not.toBe(0);
  });
});

describe('a connection within one program', () => {
  it.each([
    [undefined, 0],
    ['tcp', 2],
  ] as const)('uses loopback: %s', async (loopback, ends) => {
    const devices = [{ name: 'a', addresses: [HERE] }];
    const options = loopback === undefined ? { devices } : { devices, loopback };
    expect(await seenByKernel(await createEmbedded(options))).toBe(ends);
  });
});
