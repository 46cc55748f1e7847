import { describe, expect, it } from 'vitest';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { encodedNumber, type KernelDevice, kernelDevices } from '#daemon/kernel/nldev/devices';
import { parseNetlink } from '#daemon/kernel/nldev/message';
import { SIW } from '#daemon/kernel/uverbs/siw/persona';
import { bytesOf, hexOf } from '#test/support/hex';
import { le } from '#test/support/kernel-commands';
import { netlinkDatagrams } from '#test/support/netlink-answers';

const SIW0: KernelDevice = {
  index: 0,
  name: 'siw0',
  transport: 'iwarp',
  persona: SIW,
  nodeName: 'uverbs0',
  number: { major: 231, minor: 192 },
  nodeGuid: '505400fffe123456',
  addresses: [],
  portState: 'active',
};

/** A request as libnl sends it: sequence 7, port 9. */
function message(type: number, flags: number, attributes = ''): Uint8Array {
  const body = bytesOf(attributes);
  const head = le(16 + body.length) + le(type, 2) + le(flags, 2) + le(7) + le(9);
  return Uint8Array.from([...bytesOf(head), ...body]);
}

function answers(bytes: Uint8Array, devices: readonly KernelDevice[] = [SIW0]): string[] {
  return netlinkDatagrams(bytes, devices).map(hexOf);
}

const hex = (text: string): string => hexOf(bytesOf(text));

describe('GET', () => {
  it('dumps a device as the kernel does, byte for byte, and ends the dump', () => {
    const record =
      `${le(104)} 0114 0200 ${le(7)} ${le(9)}` +
      `0800 0100 ${le(0)}` +
      `0900 0200 7369773000 000000` +
      `0800 0300 ${le(1)}` +
      `0c00 0400 0000200000000000` +
      `0c00 0600 563412feff005450` +
      `0c00 0700 563412feff005450` +
      `0500 0e00 04 000000` +
      `0500 5400 00 000000` +
      `0700 4300 697700 00`;
    const done = `${le(20)} 0300 0200 ${le(7)} ${le(9)} ${le(0)}`;
    expect(answers(message(0x1401, 0x301))).toEqual([hex(record + done)]);
  });

  it('ends an empty device dump at once', () => {
    const [answer = ''] = answers(message(0x1401, 0x301), []);
    expect(parseNetlink(bytesOf(answer))?.header.type).toBe(3);
  });

  it('spreads many devices over datagrams that fit libnl, in order', () => {
    const devices = Array.from({ length: 256 }, (_, index) => ({
      ...SIW0,
      index,
      name: `device-with-a-long-name-${index}`,
    }));
    const datagrams = netlinkDatagrams(message(0x1401, 0x301), devices);
    expect(datagrams.length).toBeGreaterThan(2);
    const indices: number[] = [];
    for (const datagram of datagrams) {
      expect(datagram.length).toBeLessThanOrEqual(16_384);
      for (let at = 0; at < datagram.length; ) {
        const index = parseNetlink(datagram.subarray(at))?.attributes.get(1);
        if (index !== undefined) indices.push((index[0] ?? 0) + 256 * (index[1] ?? 0));
        at += new DataView(datagram.buffer, datagram.byteOffset + at).getUint32(0, true);
      }
    }
    expect(indices).toEqual(devices.map(({ index }) => index));
  });

  it('reports one device without the dump flag, and acknowledges on request', () => {
    const [record = '', ack = ''] = answers(message(0x1401, 0x005, `0800 0100 ${le(0)}`));
    expect(parseNetlink(bytesOf(record))?.header).toMatchObject({ flags: 0, sequence: 7 });
    expect(ack.slice(0, 48)).toBe(hex(`${le(36)} 0200 0000 ${le(7)} ${le(9)} ${le(0)} ${le(24)}`));
  });
});

describe('GET_CHARDEV', () => {
  const TYPE = { uverbs: '0b00 4500 75766572627300 00', cm: '0c00 4500 72646d615f636d00' };

  it('returns the node of a device, with the provider siw', () => {
    const record =
      `${le(60)} 0f14 0000 ${le(7)} ${le(9)}` +
      `0800 4900 ${le(18)}` +
      `0c00 4800 ${le(0xe7c0, 8)}` +
      `0c00 4700 ${le(1, 8)}` +
      `0c00 4600 7576657262733000`;
    expect(answers(message(0x140f, 1, `0800 0100 ${le(0)}${TYPE.uverbs}`))).toEqual([hex(record)]);
  });

  it('returns rdma_cm, without a provider', () => {
    const [answer = ''] = answers(message(0x140f, 1, TYPE.cm));
    const attributes = parseNetlink(bytesOf(answer))?.attributes;
    expect([...(attributes?.keys() ?? [])]).toEqual([72, 71, 70]);
    expect(hexOf(attributes?.get(71) ?? new Uint8Array(0))).toBe(le(4, 8));
  });

  it.each<[string, string, number]>([
    ['no type', `0800 0100 ${le(0)}`, -22],
    ['an unknown type', `0800 4500 69626300`, -19],
    ['no device', TYPE.uverbs, -22],
    ['a missing device', `0800 0100 ${le(1)} ${TYPE.uverbs}`, -22],
  ])('fails with %s', (_, attributes, errno) => {
    const [answer = ''] = answers(message(0x140f, 1, attributes));
    expect(answer.slice(8, 16)).toBe('02000000');
    expect(answer.slice(32, 40)).toBe(le(errno));
  });
});

describe('PORT_GET', () => {
  it.each([
    ['active', 4, 5],
    ['down', 1, 3],
  ] as const)('reports a port that is %s', (portState, state, physState) => {
    const request = message(0x1405, 1, `0800 0100 ${le(0)}`);
    const [answer = ''] = answers(request, [{ ...SIW0, portState }]);
    const attributes = parseNetlink(bytesOf(answer))?.attributes;
    expect([attributes?.get(12), attributes?.get(13)]).toEqual([
      Uint8Array.of(state),
      Uint8Array.of(physState),
    ]);
  });
});

describe('other messages', () => {
  it('reports that children may use what their parents registered', () => {
    const [answer = ''] = answers(message(0x1406, 1));
    const attributes = parseNetlink(bytesOf(answer))?.attributes;
    expect(attributes?.get(66)).toEqual(Uint8Array.of(1));
    expect(attributes?.get(93)).toEqual(Uint8Array.of(1));
  });

  it.each([0x1402, 0x0001, 0x1801])('refuses message type %i with EOPNOTSUPP', (type) => {
    expect(answers(message(type, 1))[0]?.slice(32, 40)).toBe(le(-95));
  });

  it.each([
    '',
    '10000000',
    `${le(15)} 0114 0103 ${le(7)} ${le(9)}`,
    `${le(17)} 0114 0103 ${le(7)} ${le(9)}`,
  ])('throws for malformed bytes: %s', (text) => {
    expect(() => netlinkDatagrams(bytesOf(text), [SIW0])).toThrow(IpcFormatError);
  });

  it.each(['0300 0100', '0900 0100 00000000', `0800 0100 ${le(0)} ffff`])(
    'survives malformed attributes: %s',
    (attributes) => {
      expect(answers(message(0x140f, 1, attributes))).toHaveLength(1);
    },
  );
});

describe('devices of a host', () => {
  it('are numbered in order, each with its own node', () => {
    const info = { backend: 'emulated' as const, nodeGuid: '02', addresses: [] };
    const host = { devices: [{ info: { ...info, name: 'a' } }, { info: { ...info, name: 'b' } }] };
    const devices = kernelDevices(host as never);
    expect(devices.map(({ name, nodeName, number }) => [name, nodeName, number.minor])).toEqual([
      ['a', 'uverbs0', 192],
      ['b', 'uverbs1', 193],
    ]);
  });

  it('report the state of their port at the time of the request', () => {
    const host = new RnicHost({ system: hostSystem(), devices: [{ name: 'a', addresses: [] }] });
    const [device] = kernelDevices(host);
    const [emulated] = host.devices;
    expect(device?.portState).toBe('active');
    if (emulated !== undefined) emulated.portDown = true;
    expect(device?.portState).toBe('down');
  });

  it('have numbers beyond 255 encoded as the kernel does', () => {
    expect(encodedNumber({ major: 231, minor: 192 })).toBe(0xe7c0n);
    expect(encodedNumber({ major: 231, minor: 0x1c0 })).toBe(0x10_e7c0n);
  });
});
