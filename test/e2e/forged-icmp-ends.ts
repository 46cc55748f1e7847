/**
 * Two RoCE devices that reach each other by UDP, and a stranger that forges ICMP messages about their
 * packets. A separate program, since the kernel applies ICMP to a whole network namespace.
 * Needs raw sockets. Arguments: an address for each device. Prints the outcome of a message before
 * and after, and of one on a new connection, as JSON.
 */
import { spawnSync } from 'node:child_process';
import type { TappedPacket } from '#contract/protocol/packet-records';
import { WCStatus } from '#contract/verbs/enums';
import type { CaptureTap } from '#daemon/capture/capture-tap';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { forgeHostUnreachable, forgePortUnreachable, forgeTooBig } from '../support/forged-icmp.ts';
import { type ConnectedPair, connectPair, RnicNode } from '../support/rnic-node.ts';

/** Three packets of the largest path MTU. */
const MESSAGE_BYTES = 3 * 4096;
/** The smallest MTU that a kernel accepts from ICMP, for IPv6 and for IPv4. */
const MTU_BYTES = { six: 1280, four: 552 };

const [nearAddress = '', farAddress = ''] = process.argv.slice(2);

/** Bytes of the longest datagram of a message. */
let longest = 0;
const packets = {
  watched: true,
  packet: ({ bytes }: TappedPacket) => {
    longest = Math.max(longest, bytes.length);
  },
};
const tap: CaptureTap = {
  packets,
  opened: () => {
    throw new Error('a device of RoCE has no links');
  },
};

function nodeAt(address: string): RnicNode {
  const device = { name: 'roce0', addresses: [address], transport: 'roce' as const };
  return new RnicNode({ devices: [device], roce: ROCE_NETWORK, observer: { tap } });
}

const near = nodeAt(nearAddress);
const far = nodeAt(farAddress);

async function send({ active, passive }: ConnectedPair) {
  longest = 0;
  passive.receive(0, MESSAGE_BYTES);
  active.send(0, MESSAGE_BYTES);
  const [wc] = await active.completions(1);
  const success = wc?.status === WCStatus.success;
  return { success, longest };
}

const pair = await connectPair(near, far, farAddress);
const before = await send(pair);
const quoted = {
  source: nearAddress,
  sourcePort: ROCE_PORT,
  destination: farAddress,
  destinationPort: ROCE_PORT,
};
forgePortUnreachable(quoted);
forgeHostUnreachable(quoted);
forgeTooBig(quoted, nearAddress.includes(':') ? MTU_BYTES.six : MTU_BYTES.four);
const { stdout: route } = spawnSync('ip', ['route', 'get', farAddress, 'from', nearAddress]);
const after = await send(pair);
const again = await send(await connectPair(near, far, farAddress));
const believed = /mtu (\d+)/.exec(route.toString())?.[1];
process.stdout.write(JSON.stringify({ believed, before, after, again }));
await Promise.all([near.host.close(), far.host.close()]);
