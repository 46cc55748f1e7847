import { afterEach, describe, expect, it } from 'vitest';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import type { DeviceConfig } from '#daemon/host/device-config';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';

const hosts: RnicHost[] = [];

function hostOf(...devices: DeviceConfig[]): RnicHost {
  const host = new RnicHost({ system: hostSystem(), devices, roce: ROCE_NETWORK });
  hosts.push(host);
  return host;
}

afterEach(() => Promise.all(hosts.splice(0).map((host) => host.close())));

/** Emulated devices and one that plays a native one. */
function directory(emulated: DeviceConfig[], native: string[]): DeviceDirectory {
  return new DeviceDirectory(hostOf(...emulated), hostOf({ name: 'siw0', addresses: native }));
}

describe('an address belongs to', () => {
  const everywhere = { name: 'iwarp0', addresses: [] };

  it.each([
    ['the emulated device that names it', [{ name: 'a', addresses: ['10.0.0.1'] }], 'emulated'],
    ['the native device rather than to one for every address', [everywhere], 'native'],
    [
      'the native device rather than to a RoCE device that names it',
      [{ name: 'a', addresses: ['10.0.0.1'], transport: 'roce' }],
      'native',
    ],
    ['the native device when no other has it', [{ name: 'a', addresses: ['10.0.0.2'] }], 'native'],
  ] as const)('%s', (_name, emulated, winner) => {
    const hosted = directory([...emulated], ['10.0.0.1']);
    expect(hosted.at({ address: '10.0.0.1', port: 1 })).toBe(hosted[winner]);
    // In another notation, too.
    expect(hosted.at({ address: '::ffff:10.0.0.1', port: 1 })).toBe(hosted[winner]);
  });

  it.each(['10.0.0.9', '0.0.0.0', '::', 'nonsense'])(
    'the emulated devices when no native one has it: %s',
    (address) => {
      const hosted = directory([everywhere], ['10.0.0.1']);
      expect(hosted.at({ address, port: 1 })).toBe(hosted.emulated);
    },
  );
});

describe('a destination is reached through', () => {
  it('the device of the source, given or found by the routes', () => {
    const hosted = directory([{ name: 'a', addresses: ['127.0.0.3'] }], ['127.0.0.1']);
    const destination = { address: '127.0.0.9', port: 1 };
    expect(hosted.towards(destination, { address: '127.0.0.3', port: 0 })).toBe(hosted.emulated);
    expect(hosted.towards(destination, { address: '127.0.0.1', port: 0 })).toBe(hosted.native);
    const chosen = hosted.emulated.routeSource('127.0.0.9', undefined);
    expect(hosted.towards(destination, undefined)).toBe(
      chosen === '127.0.0.1' ? hosted.native : hosted.emulated,
    );
  });
});

describe('the devices of a daemon', () => {
  const roce = { name: 'roce0', addresses: [], transport: 'roce' } as const;

  it('are found by name, without one the first that the connection manager connects', () => {
    const hosted = directory([roce, { name: 'a', addresses: [] }], ['127.0.0.1']);
    expect(hosted.devices().map(({ name }) => name)).toEqual(['roce0', 'a', 'siw0']);
    expect(hosted.find(undefined).device.name).toBe('a');
    expect(hosted.find('roce0').device.name).toBe('roce0');
    expect(directory([roce], ['127.0.0.1']).find(undefined).device.name).toBe('siw0');
    expect(new DeviceDirectory(hostOf(roce), undefined).find(undefined).device.name).toBe('roce0');
    expect(hosted.find('siw0').host).toBe(hosted.native);
    expect(() => hosted.find('b')).toThrow(expect.objectContaining({ code: 'ENODEV' }));
  });
});
