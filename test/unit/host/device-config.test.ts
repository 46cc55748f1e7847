import { describe, expect, it } from 'vitest';
import {
  checkedDevices,
  DEFAULT_DEVICE,
  DEVICES_MAX,
  parseDevice,
} from '#daemon/host/device-config';
import { EmulatedDevice, nodeGuid } from '#daemon/host/emulated-device';

const refused = expect.objectContaining({ name: 'VerbsError', code: 'EINVAL' });

describe('device options', () => {
  it('accept a name without addresses, and a name with addresses', () => {
    expect(parseDevice('iwarp1')).toEqual({ name: 'iwarp1', addresses: [] });
    expect(parseDevice('a.b-c_1=127.0.0.2,FD00:0::1')).toEqual({
      name: 'a.b-c_1',
      addresses: ['127.0.0.2', 'fd00::1'],
    });
  });

  it.each([
    '',
    '=127.0.0.1',
    'a b',
    'a=',
    'a=host',
    'a=0.0.0.0',
    'a=1.2.3.4,',
    'a=1.1.1.1,1.1.1.1',
  ])('refuse %j', (text) => expect(() => parseDevice(text)).toThrow(refused));

  it('refuse devices that share a name or an address, and two for every address', () => {
    const a = { name: 'a', addresses: ['127.0.0.1'] };
    expect(() => checkedDevices([a, { ...a, addresses: [] }])).toThrow(refused);
    expect(() => checkedDevices([a, { name: 'b', addresses: ['127.0.0.1'] }])).toThrow(refused);
    const all = [DEFAULT_DEVICE, { name: 'b', addresses: [] }];
    expect(() => checkedDevices(all)).toThrow(refused);
    expect(checkedDevices([DEFAULT_DEVICE, a])).toHaveLength(2);
  });

  it('make a device of SCTP with sctp: and addresses, which it needs', () => {
    const { addresses, ...kind } = parseDevice('a=sctp:127.0.0.2,::1');
    expect(kind).toEqual({ name: 'a', transport: 'iwarp', lowerLayer: 'sctp' });
    expect(addresses).toEqual(['127.0.0.2', '::1']);
    const kernel = { ...kind, addresses: ['127.0.0.2'], sctpTransport: 'kernel' };
    expect(parseDevice('a=kernel-sctp:127.0.0.2')).toEqual(kernel);
    expect(parseDevice('a=kernel-sctp-udp:127.0.0.2').sctpTransport).toBe('kernel-udp');
    const tcpOnly = { name: 'a', addresses: [], sctpTransport: 'kernel' } as const;
    expect(() => checkedDevices([tcpOnly])).toThrow(
      /sctpTransport is for SCTP; give it lowerLayer/,
    );
    for (const text of ['a=sctp', 'a=sctp:']) {
      expect(() => parseDevice(text)).toThrow(
        /SCTP needs addresses; write a=sctp:|no address after/,
      );
    }
    const roce = { name: 'a', addresses: [], transport: 'roce', lowerLayer: 'sctp' } as const;
    expect(() => checkedDevices([roce])).toThrow(refused);
  });

  it('reject one address for TCP and for SCTP, since it selects the protocol', () => {
    const tcp = parseDevice('a=127.0.0.2');
    expect(() => checkedDevices([tcp, parseDevice('b=sctp:127.0.0.2')])).toThrow(refused);
    expect(checkedDevices([DEFAULT_DEVICE, parseDevice('b=sctp:127.0.0.2')])).toHaveLength(2);
  });

  it('limit the number of devices', () => {
    const some = (count: number) =>
      Array.from({ length: count }, (_, index) => {
        return { name: `d${index}`, addresses: [`127.1.${index >> 8}.${index & 255}`] };
      });
    expect(() => checkedDevices([])).toThrow(refused);
    expect(checkedDevices(some(DEVICES_MAX))).toHaveLength(DEVICES_MAX);
    expect(() => checkedDevices(some(DEVICES_MAX + 1))).toThrow(refused);
  });
});

describe('a device reports', () => {
  it('a different GUID on each host, by machine id and by name', () => {
    const device = { name: 'iwarp0', addresses: [] };
    const guids = [
      nodeGuid(device, { machineId: 'aa', name: 'one' }),
      nodeGuid(device, { machineId: 'bb', name: 'one' }),
      nodeGuid(device, { machineId: 'aa', name: 'two' }),
      nodeGuid(device, { machineId: '', name: 'one' }),
    ];
    expect(new Set(guids).size).toBe(guids.length);
    expect(nodeGuid(device)).toBe(new EmulatedDevice(device, () => 1).info.nodeGuid);
  });

  it('the same GUID each time, another for another device, and a GID derived from it', () => {
    const one = new EmulatedDevice({ name: 'a', addresses: ['127.0.0.2'] }, () => 1);
    const same = new EmulatedDevice({ name: 'a', addresses: ['127.0.0.2'] }, () => 1);
    const other = new EmulatedDevice({ name: 'a', addresses: ['127.0.0.3'] }, () => 1);
    expect(one.info.nodeGuid).toMatch(/^02[\da-f]{14}$/);
    expect(same.info.nodeGuid).toBe(one.info.nodeGuid);
    expect(other.info.nodeGuid).not.toBe(one.info.nodeGuid);
    expect(one.attributes().nodeGuid).toBe(one.info.nodeGuid);
    expect(one.port().gid).toBe(
      `fe80:0000:0000:0000:${one.info.nodeGuid.match(/.{4}/g)?.join(':')}`,
    );
  });

  it('its own limits', () => {
    const small = new EmulatedDevice(
      { name: 'a', addresses: [], profile: { maxQp: 2, irdMax: 3 } },
      () => 1,
    );
    expect(small.attributes()).toMatchObject({ maxQp: 2, maxQpRdAtom: 3, physPortCnt: 1 });
    expect(small.cmDevice.irdMax).toBe(3);
  });
});
