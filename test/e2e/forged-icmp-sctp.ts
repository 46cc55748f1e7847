/**
 * Two devices of SCTP, and a stranger that forges ICMP messages about their packets, without
 * having seen one. A separate program, as forged-icmp-ends.ts. Arguments: an address for each
 * device. Prints the largest packet size as JSON: before, after messages that quote no tag of the
 * association, and after one that does, as a router on the path sends it.
 */
import { hostSystem } from '#daemon/host/links/system';
import { SCTP } from '#daemon/host/sctp/sctp-carrier';
import { sctpStack } from '#daemon/host/sctp/sctp-stack';
import { forgeHostUnreachable, forgePortUnreachable, forgeTooBig } from '../support/forged-icmp.ts';
import { until } from '../support/patience.ts';
import { connectPair, RnicNode } from '../support/rnic-node.ts';

const UDP_PORT = 9899;
const MESSAGE_BYTES = 32_768;
/** The common header and the start of an INIT, with the tag that identifies an association. */
const QUOTED_BYTES = 32;
/** Messages after which the size must be lower. */
const TRIES_MAX = 100;
/** The MTU that the router reports. */
const MTU_BYTES = 1400;

const [nearAddress = '', farAddress = ''] = process.argv.slice(2);
const system = hostSystem();

function nodeAt(address: string): RnicNode {
  const device = { name: 'iwarp0', addresses: [address], lowerLayer: 'sctp' as const };
  return new RnicNode({ system, devices: [device], carriers: [SCTP] });
}

const near = nodeAt(nearAddress);
const far = nodeAt(farAddress);
const stack = sctpStack(system.clock);
/** The longest packet of the near device since the last call, and the start of its last packet. */
let longest = 0;
let begin = new Uint8Array(0);
stack.carrier.observe({
  watched: true,
  packet: (way, { address }, _peer, _port, sctp) => {
    if (way === 'in' || address !== nearAddress) return;
    longest = Math.max(longest, sctp.length);
    begin = sctp.slice(0, QUOTED_BYTES);
  },
});
const { active, passive } = await connectPair(near, far, farAddress);

/** Sends a message; returns the length of its longest packet. */
async function send(): Promise<number> {
  longest = 0;
  passive.receive(0, MESSAGE_BYTES);
  active.send(0, MESSAGE_BYTES);
  await Promise.all([active.completions(1), passive.completions(1)]);
  return longest;
}

const ends = {
  source: nearAddress,
  sourcePort: UDP_PORT,
  destination: farAddress,
  destinationPort: UDP_PORT,
};
const before = await send();
const guess = begin.slice().fill(0x5a, 4, 8);
for (const payload of [new Uint8Array(0), new Uint8Array(QUOTED_BYTES), guess]) {
  forgePortUnreachable({ ...ends, payload });
  forgeHostUnreachable({ ...ends, payload });
  forgeTooBig({ ...ends, payload }, MTU_BYTES);
}
await until('the forged messages', () => stack.counters.unfounded >= 9);
const after = await send();
forgeTooBig({ ...ends, payload: begin }, MTU_BYTES);
let afterwards = before;
for (let tries = 0; tries < TRIES_MAX && afterwards === before; tries += 1)
  afterwards = await send();
process.stdout.write(JSON.stringify({ same: before === after, afterwards }));
await Promise.all([near.host.close(), far.host.close()]);
