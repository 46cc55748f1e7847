/**
 * A RoCE device for every address in a process that has no descriptor left, and a stranger that sends
 * to it. Arguments: the addresses of both. Prints each step that it survived.
 */
import { openSync } from 'node:fs';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { datagramEnd } from '../support/datagram-end.ts';
import { RnicNode } from '../support/rnic-node.ts';
import { RoceStranger } from '../support/roce-stranger.ts';

const TIMES = 8;
const [own = '', from = ''] = process.argv.slice(2);
const devices = [{ name: 'roce0', addresses: [], transport: 'roce' as const }];
const node = new RnicNode({ devices, roce: ROCE_NETWORK });
const { counters } = node.device().rocePort ?? {};
if (counters === undefined) throw new Error('no RoCE device');
const { qp } = datagramEnd(node.device(), () => node.host.drain());
const { id } = node.listen(own);
const stranger = new RoceStranger(from, own, counters);
await stranger.open();
await stranger.sendDatagrams(qp.qpn, 1);

/** Takes all descriptors. */
function exhaust(): string {
  for (;;) {
    try {
      openSync('/dev/null', 'r');
    } catch (error) {
      return error instanceof Error && 'code' in error ? String(error.code) : String(error);
    }
  }
}

const state = exhaust();
await stranger.sendDatagrams(qp.qpn, TIMES);
await stranger.sendRequests(TIMES);
node.host.checkAddresses();
process.stdout.write(`${state}: ${counters.badQkeys} ${node.eventsOf(id).length}`);
process.exit(0);
