/** Which device and which path lead from an address to another. */
import { describe, expect, it } from 'vitest';
import { MulticastGroups } from '#daemon/host/roce/multicast-groups';
import { RocePort } from '#daemon/host/roce/roce-port';
import { RoceRoutes } from '#daemon/host/roce/roce-routes';
import { LentPayload } from '#daemon/rnic/memory/lent-payload';

/** Devices with these addresses, on a machine that uses `source` for its own. */
function routes(devices: readonly (readonly string[])[], source: string | undefined): RoceRoutes {
  const ports: RocePort[] = [];
  const host = {
    rocePorts: () => ports,
    addresses: [],
    checkAddresses: () => undefined,
    outwardMtu: () => 3,
    makeWire: () => {
      throw new Error('no wire');
    },
    lentPayload: new LentPayload(),
    multicastGroups: new MulticastGroups(),
    random32: () => 0xffff_ffff,
    routeSource: (_destination: string, wanted: string | undefined) => wanted ?? source,
  };
  devices.forEach((addresses, index) => {
    const device = { name: `roce${index}`, addresses, nodeGuid: `020000000000000${index}` };
    ports.push(new RocePort(device, host));
  });
  return new RoceRoutes(host);
}

const shown = (found: ReturnType<RoceRoutes['find']>) =>
  'error' in found ? found.error : [found.port.name, found.source, found.destination];

describe('a route', () => {
  it('leaves from the device that has the source of the machine', () => {
    const found = routes([['10.0.0.1'], ['10.0.0.2']], '10.0.0.2');
    expect(shown(found.find('10.9.9.9', undefined))).toEqual(['roce1', '10.0.0.2', '10.9.9.9']);
    expect(shown(found.find('10.9.9.9', '10.0.0.1'))).toEqual(['roce0', '10.0.0.1', '10.9.9.9']);
    expect(shown(found.find('10.9.9.9', '10.0.0.3'))).toBe('ENODEV');
  });

  it('leaves from a device that reaches the destination if the machine names no device', () => {
    const found = routes([['fd00::1'], ['10.0.0.2']], '10.0.0.9');
    expect(shown(found.find('10.9.9.9', undefined))).toEqual(['roce1', '10.0.0.2', '10.9.9.9']);
    expect(shown(routes([['fd00::1']], undefined).find('10.9.9.9', undefined))).toBe('ENETUNREACH');
  });

  it('to loopback leads to a device of this machine', () => {
    const found = routes([['10.0.0.1', 'fd00::1'], ['10.0.0.2']], '127.0.0.1');
    expect(shown(found.find('127.0.0.1', undefined))).toEqual(['roce0', '10.0.0.1', '10.0.0.1']);
    expect(shown(found.find('127.0.0.1', '10.0.0.2'))).toEqual(['roce1', '10.0.0.2', '10.0.0.2']);
    expect(shown(found.find('::1', undefined))).toEqual(['roce0', 'fd00::1', 'fd00::1']);
  });

  it('to ::1 uses a link-local GID if no device has another IPv6 address', () => {
    const own = 'fe80::200:0:0:0';
    const found = routes([['10.0.0.1'], ['10.0.0.2']], '10.0.0.1');
    expect(shown(found.find('::1', undefined))).toEqual(['roce0', own, own]);
    const mixed = routes([['10.0.0.1'], ['fd00::2']], '10.0.0.1');
    expect(shown(mixed.find('::1', undefined))).toEqual(['roce1', 'fd00::2', 'fd00::2']);
  });

  it('to loopback is like any other for devices with loopback addresses', () => {
    const found = routes([['127.0.0.2'], ['127.0.0.3']], '127.0.0.1');
    expect(shown(found.find('127.0.0.4', undefined))).toEqual(['roce0', '127.0.0.2', '127.0.0.4']);
    expect(shown(found.find('127.0.0.4', '127.0.0.3'))).toEqual([
      'roce1',
      '127.0.0.3',
      '127.0.0.4',
    ]);
  });
});

describe('a path', () => {
  it('has the MTU of its network, or the largest between devices of one host', () => {
    const found = routes([['10.0.0.1'], ['10.0.0.2']], '10.0.0.1');
    const pathTo = (destination: string) => {
      const route = found.find(destination, undefined);
      if ('error' in route) throw new Error(route.error);
      return found.path(route, 0x20);
    };
    expect(pathTo('10.9.9.9')).toMatchObject({
      sgidIndex: 1,
      flowLabel: 0xf_ffff,
      hopLimit: 64,
      trafficClass: 0x20,
      pkey: 0xffff,
      pathMtu: 3,
      packetLifeTime: 18,
    });
    expect(pathTo('10.0.0.2')).toMatchObject({ pathMtu: 5 });
  });
});
