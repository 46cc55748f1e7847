/**
 * Connects two devices of one kind in a process whose system calls strace counts. An access to
 * `/phase/NAME` marks the start of each phase. A separate program, so that nothing else is counted.
 * Arguments: the kind, and the number of queue pairs, connections, messages or packets of a phase.
 */
import { existsSync } from 'node:fs';
import { QPState } from '#contract/verbs/enums';
import { gidBytes } from '#daemon/host/host-addresses';
import { hostSystem } from '#daemon/host/links/system';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { SCTP } from '#daemon/host/sctp/sctp-carrier';
import { datagramEnd } from '../support/datagram-end.ts';
import { bringTo, PEER } from '../support/program-steps.ts';
import { connectPair, RnicNode } from '../support/rnic-node.ts';
import { RoceStranger } from '../support/roce-stranger.ts';
import { SctpStranger } from '../support/sctp-stranger.ts';

const [NEAR, FAR, STRANGER] = ['198.18.9.1', '198.18.9.2', '198.18.9.3'];

type Options = ConstructorParameters<typeof RnicNode>[0];

/** The nodes of both ends: one host for both, or one each. */
function nodesOf(kind: string): [near: RnicNode, far: RnicNode] {
  const parts = { roce: ROCE_NETWORK, carriers: [SCTP] };
  const node = (...devices: NonNullable<NonNullable<Options>['devices']>): RnicNode => {
    return new RnicNode({
      ...parts,
      system: hostSystem(kind === 'TCP' ? 'tcp' : 'memory'),
      devices,
    });
  };
  const roce = (name: string, ...addresses: readonly string[]) => {
    return { name, addresses, transport: 'roce' as const };
  };
  const sctp = (address: string) => {
    return { name: 'iwarp0', addresses: [address], lowerLayer: 'sctp' as const };
  };
  switch (kind) {
    case 'RoCE, an address':
      return [node(roce('roce0', NEAR)), node(roce('roce0', FAR))];
    case 'RoCE, every address':
      return [node(roce('roce0')), node(roce('roce0', FAR))];
    case 'RoCE, within the host':
    case 'RoCE, every address within the host': {
      const addresses = kind === 'RoCE, within the host' ? [NEAR, FAR] : [];
      const both = node(roce('roce0', ...addresses));
      return [both, both];
    }
    case 'SCTP':
      return [node(sctp(NEAR)), node(sctp(FAR))];
    case 'TCP':
      return [node({ name: 'iwarp0', addresses: [] }), node({ name: 'iwarp0', addresses: [] })];
    default: {
      const both = node({ name: 'iwarp0', addresses: [] });
      return [both, both];
    }
  }
}

const [kind = '', times = ''] = process.argv.slice(2);
const TIMES = Number(times);
const isRoce = kind.startsWith('RoCE');
const [near, far] = nodesOf(kind);
// A device for every address needs the address of a working interface.
const OF_ROCE = kind === 'RoCE, every address within the host' ? NEAR : FAR;
const address = isRoce || kind === 'SCTP' ? OF_ROCE : '127.0.0.1';

/** Begins a phase. */
function phase(name: string): void {
  existsSync(`/phase/${name}`);
}

function queuePair(): void {
  const { qp } = near.channel('roce0');
  const ahAttr = { ...PEER, dgid: gidBytes(address) };
  bringTo(qp, QPState.RTS, { ahAttr });
  near.host.drain();
}

async function message({ active, passive }: Awaited<ReturnType<typeof connectPair>>) {
  passive.receive(0, 4096);
  active.send(0, 4096);
  await Promise.all([active.completions(1), passive.completions(1)]);
}

const pair = await connectPair(near, far, address);
await message(pair);
if (isRoce) {
  queuePair();
  phase('queue pairs');
  for (let count = 0; count < TIMES; count += 1) queuePair();
}
phase('connections');
for (let count = 0; count < TIMES; count += 1) await connectPair(near, far, address);
phase('messages');
for (let count = 0; count < TIMES; count += 1) await message(pair);
phase('none');
if (kind.startsWith('RoCE, ') && near !== far) {
  const { qp } = datagramEnd(near.device(), () => near.host.drain());
  const { counters } = near.device().rocePort ?? {};
  if (counters === undefined) throw new Error('no RoCE device');
  const stranger = new RoceStranger(STRANGER, NEAR, counters);
  await stranger.open();
  await stranger.sendDatagrams(qp.qpn, 1);
  await stranger.sendRequests(1);
  phase('datagrams of a stranger');
  await stranger.sendDatagrams(qp.qpn, TIMES);
  phase('requests of a stranger');
  await stranger.sendRequests(TIMES);
  phase('none');
  stranger.close();
}
if (kind === 'SCTP') {
  const { at } = near.listen(NEAR);
  const stranger = new SctpStranger(NEAR, at.port);
  await stranger.open(STRANGER, TIMES + 1);
  await stranger.sendRequests(1);
  phase('requests of a stranger');
  await stranger.sendRequests(TIMES);
  phase('none');
  stranger.close();
}
// The hosts' UDP sockets do not keep the process alive.
const alive = setInterval(() => undefined, 60_000);
await Promise.all([near.host.close(), far.host.close()]);
clearInterval(alive);
