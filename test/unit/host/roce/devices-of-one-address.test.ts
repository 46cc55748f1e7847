/**
 * A RoCE device for every address beside one that names an address of this host: each address
 * belongs to one device, or packets to it would reach the wrong one.
 */
import { describe, expect, it } from 'vitest';
import { Access, MTU, QPState, WROpcode } from '#contract/verbs/enums';
import type { Context } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { checkedDevices } from '#daemon/host/device-config';
import { hostAddresses, primaryAddress } from '#daemon/host/host-addresses';
import { gidTable } from '#daemon/host/roce/gid-table';
import { addressGid } from '#verbs-api/address-gid';

/** The first entry of a device for every address. */
const { address: ADDRESS } = primaryAddress({ addresses: [] }, hostAddresses());
const open = { name: 'open', transport: 'roce', addresses: [] } as const;
const named = { name: 'named', transport: 'roce', addresses: [ADDRESS] } as const;

/** Connects two queue pairs of the device by each of its GIDs, and sends from one to the other. */
async function reachesItself(context: Context): Promise<void> {
  const pd = await context.allocPD();
  for (const { gid: dgid, gidIndex: sgidIndex } of await context.queryGidTable()) {
    const cq = await context.createCQ({ cqe: 4 });
    const init = { sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1, maxInlineData: 1 };
    const [near, far] = [await pd.createQP(init), await pd.createQP(init)];
    for (const [qp, peer] of [
      [near, far],
      [far, near],
    ] as const) {
      const start = { pkeyIndex: 0, portNum: 1, accessFlags: Access.none };
      await qp.modify({ state: QPState.INIT, ...start });
      const path = { ahAttr: { grh: { dgid, sgidIndex } }, destQpNum: peer.qpNum };
      const depths = { pathMtu: MTU.mtu1024, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 12 };
      await qp.modify({ state: QPState.RTR, ...path, ...depths });
      const retries = { timeout: 8, retryCnt: 1, rnrRetry: 1, maxRdAtomic: 1 };
      await qp.modify({ state: QPState.RTS, sqPsn: 0, ...retries });
    }
    const memory = await pd.allocMR(8, Access.localWrite);
    far.postRecv({ sgList: [memory.sge()] });
    near.postSend({ opcode: WROpcode.send, inlineData: Uint8Array.of(7) });
    const [completion] = await cq.wait();
    expect(completion, `through GID ${sgidIndex}: ${dgid}`).toMatchObject({ status: 0 });
  }
}

describe.each([
  ['first', [open, named]],
  ['second', [named, open]],
] as const)('a RoCE device for every address, given %s', (_, devices) => {
  it('has no GID of the other one, and reaches itself by each of its own', async () => {
    await using rnic = await createEmbedded({ devices });
    const tables = [];
    for (const name of ['open', 'named']) {
      const context = await rnic.open(name);
      tables.push((await context.queryGidTable()).map(({ gid }) => gid));
      await reachesItself(context);
    }
    const [opens = [], nameds = []] = tables;
    expect(nameds).toContain(addressGid(ADDRESS));
    expect(opens.filter((gid) => nameds.includes(gid))).toEqual([]);
  });

  it('leaves ids bound to that address to the other one', async () => {
    await using rnic = await createEmbedded({ devices });
    await using id = await rnic.createId();
    await id.bindAddr({ address: ADDRESS, port: 0 });
    expect(id.device).toBe('named');
  });
});

describe('the GID table of a device for every address', () => {
  const host = [
    { address: '127.0.0.1', interfaceName: 'lo' },
    { address: '192.0.2.1', interfaceName: 'eth0' },
    { address: '192.0.2.2', interfaceName: 'eth1' },
    { address: '2001:db8::1', interfaceName: 'eth0' },
  ];
  const gidsOf = (others: readonly string[]) => {
    const table = gidTable({ addresses: [], nodeGuid: '0200000000000001', others }, host);
    const used = table.filter(({ interfaceName }) => interfaceName !== undefined);
    return used.slice(1).map(({ gid }) => gid);
  };

  it.each([
    [[], ['192.0.2.1', '192.0.2.2', '2001:db8::1']],
    [['192.0.2.1'], ['192.0.2.2', '2001:db8::1']],
    [['192.0.2.1', '192.0.2.2'], ['2001:db8::1']],
    [['192.0.2.1', '192.0.2.2', '2001:db8::1'], ['127.0.0.1']],
    [['192.0.2.1', '192.0.2.2', '2001:db8::1', '127.0.0.1'], []],
  ])('beside devices of %j has %j', (others, addresses) => {
    expect(gidsOf(others)).toEqual(addresses.map(addressGid));
  });
});

describe('devices of one link-local address', () => {
  it('are refused whatever their zone: their GIDs are the same', () => {
    const at = (name: string, address: string) => ({
      name,
      transport: 'roce' as const,
      addresses: [address],
    });
    const devices = [at('a', 'fe80::1%eth0'), at('b', 'fe80::1%eth1')];
    expect(() => checkedDevices(devices)).toThrow('two RoCE devices have the address fe80::1');
  });
});
