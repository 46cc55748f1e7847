/** Ports that are held for a program with thousands of listeners, which ends. */
import { afterEach, expect, it, vi } from 'vitest';
import { PortSpace } from '#daemon/host/host-id';
import { IsolatedNetwork } from '#daemon/host/links/isolated-network';
import { isolatedSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';

const MANY = 300;
/** Ports that are released in one turn. */
const PER_TURN = 64;
const PROGRAM = {};

afterEach(() => vi.restoreAllMocks());

it.each(['the program', 'every program, by a reset,'])(
  'are released in several turns when %s ends',
  async (who) => {
    const devices = [{ name: 'iwarp0', addresses: ['127.0.0.1'] }];
    const host = new RnicHost({ system: isolatedSystem(devices), devices });
    const ids = Array.from({ length: MANY }, (_, index) => {
      const id = host.cm.createId('listener', PortSpace.tcp, false);
      id.portKeeper = PROGRAM;
      host.cm.bindAddr(id, { address: '127.0.0.1', port: 20_000 + index });
      host.cm.listen(id, 1);
      return id;
    });
    for (const id of ids) host.cm.destroy(id);
    host.drain();
    const drop = vi.spyOn(IsolatedNetwork.prototype, 'drop');
    if (who === 'the program') host.releasePorts(PROGRAM);
    const done = who === 'the program' ? undefined : host.reset();
    let [most, before] = [0, 0];
    while (before < MANY) {
      const { length } = drop.mock.calls;
      most = Math.max(most, length - before);
      before = length;
      await new Promise((resolve) => setImmediate(resolve));
    }
    await done;
    expect(most).toBeLessThanOrEqual(PER_TURN);
    expect(drop).toHaveBeenCalledTimes(MANY);
    await host.close();
  },
);
