/** Packets of another host for queue pairs of one program, with memory accessed by system calls. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus } from '#contract/protocol/queue-layout';
import { QPType } from '#contract/verbs/enums';
import { ProcessBacking } from '#daemon/clients/objects/process-backing';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { gidBytes } from '#daemon/host/host-addresses';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { addressOf } from '#native-bridge/libc/libc';
import { ProcessMemory } from '#native-bridge/libc/process-vm';
import { ownAddress } from '#test/support/own-address';
import { until } from '#test/support/patience';
import { PEER } from '#test/support/program-steps';
import { RoceEnd } from '#test/support/roce-host';

const { success, locProtErr, remOpErr } = CQEStatus;
const [NEAR, FAR] = [ownAddress(33), ownAddress(34)];
/** Nothing is mapped there. */
const UNMAPPED = 4096;

/** A host with one device on real sockets. */
class World {
  readonly host: RnicHost;

  constructor(address: string) {
    const devices = [{ name: 'roce0', addresses: [address], transport: 'roce' as const }];
    this.host = new RnicHost({ system: hostSystem(), devices, roce: ROCE_NETWORK });
  }

  device(): EmulatedDevice {
    return this.host.devices[0] as EmulatedDevice;
  }
}

describe('packets of one batch for several queue pairs of a program', () => {
  let near: World;
  let far: World;
  let program: ProcessMemory;

  beforeEach(() => {
    near = new World(NEAR);
    far = new World(FAR);
    program = new ProcessMemory(process.pid);
  });

  afterEach(async () => {
    await near.host.close();
    await far.host.close();
    program.close();
  });

  /** A queue pair of the program, with all of its memory mapped, or none. */
  function endOf(world: World, isMapped: boolean): RoceEnd {
    return new RoceEnd(world, 0, QPType.rc, (bytes) => {
      const address = isMapped ? Number(addressOf(bytes)) : UNMAPPED;
      return new ProcessBacking(program, address, bytes.length);
    });
  }

  function connect(end: RoceEnd, peer: RoceEnd, address: string): void {
    end.connect(peer, { ahAttr: { ...PEER, dgid: gidBytes(address) }, timeout: 14, retryCnt: 7 });
  }

  it.each([[[false, true]], [[true, false]], [[true, false, true]]])(
    'fail only for queue pairs without their memory: mapped %j',
    async (mapped) => {
      const pairs = mapped.map((isMapped) => {
        const [a, b] = [endOf(near, true), endOf(far, isMapped)];
        connect(a, b, FAR);
        connect(b, a, NEAR);
        a.memory.set([1, 2, 3, 4]);
        b.receives.post(7, [b.piece(0, 4)]);
        a.send(1, 0, 4);
        return { a, b };
      });
      // All leave before the event loop of either host continues.
      for (const { a } of pairs) a.ring();
      const outcome: unknown[] = [];
      for (const { a, b } of pairs) {
        const came: unknown[] = [];
        await until('both completions', () => {
          came.push(...b.completions.outcome(), ...a.completions.outcome());
          return came.length >= 2;
        });
        outcome.push([came, [...b.memory.subarray(0, 4)]]);
      }
      const whole = [
        [7, success],
        [1, success],
      ];
      const lost = [
        [7, locProtErr],
        [1, remOpErr],
      ];
      expect(outcome).toEqual(
        mapped.map((isMapped) => (isMapped ? [whole, [1, 2, 3, 4]] : [lost, [0, 0, 0, 0]])),
      );
    },
  );

  it('do not count as sent if their payload is gone', async () => {
    const [a, b] = [endOf(near, false), endOf(far, true)];
    connect(a, b, FAR);
    connect(b, a, NEAR);
    a.send(1, 0, 4);
    a.ring();
    await until('the completion', () => a.completions.outcome().length > 0);
    expect(near.device().hwCounters).toMatchObject({ sent_pkts: 0 });
  });
});
