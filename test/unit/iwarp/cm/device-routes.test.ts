import { describe, expect, it } from 'vitest';
import type { HostNetwork } from '#daemon/iwarp/cm/cm-host';
import type { CmDevice } from '#daemon/iwarp/cm/cm-types';
import { DeviceRoutes } from '#daemon/iwarp/cm/device-routes';
import { CmRig, device } from '#test/support/cm-rig';

const TCP = device('tcp');
const SCTP: CmDevice = { ...device('sctp', ['127.0.0.2', '10.0.0.2']), lowerLayer: 'sctp' };
const OTHER: CmDevice = { ...device('other', ['127.0.0.3']), lowerLayer: 'sctp' };

/** A host that reaches everything from its first address of the same kind, or from the one given. */
const network = {
  sourceAddress: (destination: string, source: string | undefined) => {
    return { address: source ?? (destination.startsWith('127.') ? '127.0.0.1' : '10.0.0.1') };
  },
} as HostNetwork;

const find = (devices: readonly CmDevice[], destination: string, bound?: string) =>
  new DeviceRoutes(() => devices, network).find(destination, bound);

describe('the route to an address of a device of SCTP', () => {
  const devices = [TCP, SCTP, OTHER];

  it('is through a device of SCTP, from an address of its kind', () => {
    expect(find(devices, '127.0.0.3')).toEqual({ address: '127.0.0.2', device: SCTP });
    expect(find(devices, '10.0.0.2')).toEqual({ address: '10.0.0.2', device: SCTP });
  });

  it('is through the device with the address that the id is bound to, whatever its protocol', () => {
    expect(find(devices, '127.0.0.3', '127.0.0.1')).toEqual({ address: '127.0.0.1', device: TCP });
    expect(find(devices, '127.0.0.3', '127.0.0.2')).toEqual({ address: '127.0.0.2', device: SCTP });
  });

  it('to other addresses is through the device that has the source', () => {
    expect(find(devices, '127.0.0.1')).toEqual({ address: '127.0.0.1', device: TCP });
    expect(find(devices, '10.9.9.9')).toEqual({ address: '10.0.0.1', device: TCP });
    expect(find([SCTP], '10.9.9.9')).toEqual({ address: '10.0.0.2', device: SCTP });
  });
});

describe('a connection to an address of a device with another protocol', () => {
  it('is refused by name', () => {
    const rig = new CmRig([{ ...device('s', ['10.0.0.1']), lowerLayer: 'sctp' }]);
    const facts = rig.facts();
    expect(rig.manager.handleIncoming(rig.listening(), facts, rig.now)).toBe(
      'connection over TCP to 10.0.0.1, but device s uses SCTP',
    );
    const sctp = { ...facts, lowerLayer: 'sctp' } as const;
    expect(rig.manager.handleIncoming(rig.listening(), sctp, rig.now)).toMatchObject({
      phase: 'awaiting-request',
    });
  });
});
