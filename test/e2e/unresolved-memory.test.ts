/** Client memory that never resolves: the client waits, or is ended, without effect on others. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import { connect } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { DaemonProcess, printed, startProgram } from '../support/daemon-process.ts';
import { parseRegion } from '../support/daemon-region.ts';
import { quiet } from '../support/patience.ts';
import { completions, connectedPair, type Pair, send } from '../support/provider-fixture.ts';

/** Only root may handle page faults of the kernel, unless the system allows every user to. */
const mayLeaveUnresolved = process.getuid?.() === 0;

let daemon: DaemonProcess;
let provider: Provider;
let pair: Pair;
let client: ChildProcess;

beforeEach(async () => {
  daemon = await DaemonProcess.start({ devices: [{ name: 'rnic0', addresses: ['127.0.0.1'] }] });
  provider = await connectDaemon({ socketPath: daemon.socketPath });
  pair = await connectedPair({ server: provider, client: provider, stop: async () => undefined });
});

afterEach(async () => {
  client.kill('SIGKILL');
  await provider.close();
  await daemon.clean();
});

/** Starts the client and writes into its memory. */
async function writeInto(when: 'before' | 'after'): Promise<{ tier: string; peer: Connection }> {
  client = startProgram('daemon-unresolved', daemon.socketPath, when);
  const [port, tier = ''] = (await printed(client, /listens on (.*)\n/)).split(', memory by ');
  const context = await provider.open();
  const pd = await context.allocPD();
  const source = await pd.allocMR(4096, Access.localWrite);
  const peer = await connect(provider, { host: '127.0.0.1', port: Number(port), pd });
  const target = parseRegion(peer.established.privateData);
  peer.qp.postSend({
    opcode: WROpcode.rdmaWrite,
    flags: SendFlag.signaled,
    sgList: [source.sge()],
    remoteAddr: target.address,
    rkey: target.rkey,
  });
  return { tier, peer };
}

async function roundTrip(): Promise<void> {
  const { client: left, server: right } = pair;
  right.connection.qp.postRecv({ sgList: [right.mr.sge()] });
  left.connection.qp.postSend(send([left.mr.sge(0, 64)]));
  await Promise.all([completions(right.connection.cq), completions(left.connection.cq)]);
}

describe.runIf(mayLeaveUnresolved)('memory that never answers', () => {
  it('is left to the agent of its client, which waits alone', async () => {
    const { tier } = await writeInto('before');
    expect(tier).toBe('agent');
    // Longer than the guard of other memory waits.
    for (let round = 0; round < 30; round += 1) {
      await roundTrip();
      await quiet(100);
    }
    expect(client.signalCode).toBeNull();
    const { clients } = await daemon.status();
    const reasons = clients.map(({ usage }) => usage.tierReasons['agent'] ?? '');
    expect(reasons.join()).toContain('the process uses userfaultfd');
  });

  it('that appears unexpectedly ends only its client, which the log names', async () => {
    const { tier } = await writeInto('after');
    expect(tier).toBe('process_vm');
    const ended = once(client, 'exit');
    await roundTrip();
    const [, signal] = await ended;
    expect(signal).toBe('SIGKILL');
    await expect.poll(() => daemon.log).toContain(`ended pid ${client.pid}`);
    // Once is enough: the daemon reaches the next process of that program through its agent,
    // which waits alone.
    const next = await writeInto('after');
    expect(next.tier).toBe('agent');
    await roundTrip();
    await provider.close();
    expect(await daemon.end('SIGTERM')).toBe(0);
  });
});
