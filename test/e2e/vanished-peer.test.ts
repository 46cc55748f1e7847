/**
 * A peer that vanishes silently: nothing more arrives from its network namespace. Needs root and
 * iproute2, since the test creates that namespace.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AsyncEventType, CMEventType, QPState, WCStatus } from '#contract/verbs/enums';
import type { WireDefaults } from '#daemon/iwarp/cm/cm-types';
import { bytesOf } from '../support/hex.ts';
import { emitFpdu, mpaRequest } from '../support/mpa-frames.ts';
import { quiet, until } from '../support/patience.ts';
import { type Channel, NO_WISHES, RnicNode } from '../support/rnic-node.ts';

const APART = `iwarpd-${process.pid}`;
const LINK = `iw${process.pid}`;
/** An address of the block for tests of devices, RFC 2544. */
const OURS = '198.18.77.1';
const THEIRS = '198.18.77.2';
/** With one probe and an interval of a second: the shortest possible. */
const WIRE = {
  keepaliveIdleMicros: 1_000_000,
  keepaliveIntervalMicros: 1_000_000,
  keepaliveProbes: 1,
};

/** Connects, sends a Request, and sends its first FPDU when accepted. */
const PEER = `
const [address, port, request, first] = process.argv.slice(1);
const socket = require('node:net').connect(Number(port), address);
socket.on('error', () => {});
socket.write(Buffer.from(request, 'hex'));
socket.once('data', () => socket.write(Buffer.from(first, 'hex')));
`;

function ip(...words: string[]): boolean {
  return spawnSync('ip', words, { stdio: 'ignore' }).status === 0;
}

const able = process.getuid?.() === 0 && ip('netns', 'add', APART);
const reason = able ? '' : ' (needs root and iproute2)';

describe.skipIf(!able)(`a peer that vanishes${reason}`, () => {
  const nodes: RnicNode[] = [];
  const peers: ChildProcess[] = [];

  beforeAll(() => {
    ip('link', 'add', LINK, 'type', 'veth', 'peer', 'name', 'iwarp', 'netns', APART);
    ip('address', 'add', `${OURS}/30`, 'dev', LINK);
    ip('link', 'set', LINK, 'up');
    ip('-n', APART, 'address', 'add', `${THEIRS}/30`, 'dev', 'iwarp');
    ip('-n', APART, 'link', 'set', 'iwarp', 'up');
  });

  afterAll(async () => {
    for (const peer of peers) peer.kill('SIGKILL');
    await Promise.all(nodes.map(({ host }) => host.close()));
    ip('netns', 'delete', APART);
  });

  /** A connection to a peer that has just vanished. */
  async function vanished(
    wire: Partial<WireDefaults>,
  ): Promise<{ to: RnicNode; channel: Channel; id: RnicNodeId }> {
    ip('-n', APART, 'route', 'delete', 'blackhole', `${OURS}/32`);
    const to = new RnicNode({ devices: [{ name: 'iwarp0', addresses: [], wire }] });
    nodes.push(to);
    const listener = to.listen(OURS);
    const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
    const first = hex(emitFpdu(bytesOf('c1 40 00*12')));
    const words = [OURS, String(listener.at.port), hex(mpaRequest()), first];
    const command = ['netns', 'exec', APART, process.execPath, '-e', PEER, ...words];
    peers.push(spawn('ip', command, { stdio: 'ignore' }));
    const { id } = await to.event(listener.id);
    const channel = to.channel();
    to.host.cm.accept(id, channel.qp, NO_WISHES);
    expect((await to.event(id)).type).toBe(CMEventType.established);
    await until('the first FPDU', () => channel.qp.wire?.sendable === true);
    expect(ip('-n', APART, 'route', 'add', 'blackhole', `${OURS}/32`)).toBe(true);
    return { to, channel, id };
  }

  type RnicNodeId = Awaited<ReturnType<RnicNode['event']>>['id'];

  /** Waits without keeping the processor busy. */
  async function expectDisconnected(to: RnicNode, id: RnicNodeId): Promise<void> {
    await expect.poll(() => to.eventsOf(id).length).toBeGreaterThan(0);
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
  }

  it('ends an idle connection: receives are flushed, the consumer is notified', async () => {
    const { to, channel, id } = await vanished(WIRE);
    channel.receive(0, 64);
    await expectDisconnected(to, id);
    expect(channel.qp.state).toBe(QPState.ERR);
    expect(channel.poll()).toMatchObject([{ status: WCStatus.wrFlushErr }]);
    expect(to.asyncEvents).toMatchObject([{ event: AsyncEventType.qpFatal }]);
  });

  it('ends a connection with unacknowledged data', async () => {
    const { to, channel, id } = await vanished(WIRE);
    channel.receive(0, 64);
    channel.send(0, 1000);
    await expectDisconnected(to, id);
    expect(channel.qp.state).toBe(QPState.ERR);
  });

  it('keeps a connection if keepalive is off', async () => {
    const { to, channel, id } = await vanished({ ...WIRE, keepaliveIdleMicros: 0 });
    await quiet(4000);
    expect(to.eventsOf(id)).toEqual([]);
    expect(channel.qp.state).toBe(QPState.RTS);
    to.host.cm.destroy(id);
    await to.host.reset();
  });
});
