/** Hosts that connect, accept, reject, close and disappear, over real sockets of loopback. */
import { afterEach, describe, expect, it } from 'vitest';
import type { RnicHostOptions } from '../../daemon/adapter/rnic-host.ts';
import { CMEventType, QPState, WCOpcode, WCStatus } from '../../verbs-api/contract/enums.ts';
import { connectPair, NO_WISHES, RnicNode, until } from '../support/rnic-node.ts';

const nodes: RnicNode[] = [];

function node(options: RnicHostOptions = {}): RnicNode {
  const made = new RnicNode(options);
  nodes.push(made);
  return made;
}

afterEach(async () => {
  await Promise.all(nodes.splice(0).map(({ host }) => host.close()));
});

describe('connect and accept', () => {
  it('establishes both sides and moves a Send each way', async () => {
    const from = node();
    const to = node();
    const { active, passive } = await connectPair(from, to);
    expect(active.qp.state).toBe(QPState.RTS);
    expect(passive.qp.state).toBe(QPState.RTS);
    passive.receive(0, 4096);
    active.buffer.set([1, 2, 3, 4, 5]);
    active.send(0, 5);
    const [received] = await passive.completions(1);
    expect(received).toMatchObject({ status: WCStatus.success, opcode: WCOpcode.recv, byteLen: 5 });
    expect([...passive.buffer.subarray(0, 6)]).toEqual([1, 2, 3, 4, 5, 0]);
    const [sent] = await active.completions(1);
    expect(sent).toMatchObject({ status: WCStatus.success, opcode: WCOpcode.send });
    active.receive(100, 100);
    passive.send(0, 3);
    const [answer] = await active.completions(1);
    expect(answer).toMatchObject({ status: WCStatus.success, byteLen: 3 });
  });
});
