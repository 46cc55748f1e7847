import { describe, expect, it } from 'vitest';
import { defaultSocketPath } from '#contract/protocol/ipc-admin';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { parseDaemonConfig } from '#daemon/main/config';

describe('the socket path', () => {
  const place = { uid: 1000, temporaryDirectory: '/tmp' };

  it.each([
    [{ IWARPD_SOCKET: '/a/b', XDG_RUNTIME_DIR: '/run/user/1000' }, '/a/b'],
    [{ IWARPD_SOCKET: '', XDG_RUNTIME_DIR: '/run/user/1000' }, '/run/user/1000/iwarpd/iwarpd.sock'],
    [{ XDG_RUNTIME_DIR: '' }, '/tmp/iwarpd-1000/iwarpd.sock'],
    [{}, '/tmp/iwarpd-1000/iwarpd.sock'],
  ])('%o: %s', (environment, path) => {
    expect(defaultSocketPath({ ...place, environment })).toBe(path);
  });
});

describe('options of a daemon', () => {
  it('all have defaults', () => {
    const config = parseDaemonConfig({}, { IWARPD_SOCKET: '/a/b' });
    expect(config).toMatchObject({
      socketPath: '/a/b',
      devices: [
        { name: 'roce0', addresses: [], transport: 'roce' },
        { name: 'iwarp0', addresses: [] },
      ],
      loopback: 'memory',
      memoryTiers: ['shared', 'process_vm', 'agent'],
      allowOtherUsers: false,
      quotas: DEFAULT_QUOTAS,
      logLevel: 'info',
    });
  });

  it('a device of SCTP keeps its choice of an SCTP implementation', () => {
    const device = { name: 'a', addresses: ['127.0.0.2'], lowerLayer: 'sctp' } as const;
    for (const sctpTransport of ['kernel', 'kernel-udp'] as const) {
      const { devices } = parseDaemonConfig({ devices: [{ ...device, sctpTransport }] }, {});
      expect(devices).toMatchObject([{ ...device, sctpTransport }]);
    }
  });

  it('a socket path is made absolute', () => {
    expect(parseDaemonConfig({ socketPath: 'x/s' }, {}).socketPath).toBe(`${process.cwd()}/x/s`);
  });

  it('memory tiers come from the option, else from the environment; shared is always included', () => {
    const tiers = (options: object, listed?: string) =>
      parseDaemonConfig(options, { IWARPD_MEMORY_TIERS: listed }).memoryTiers;
    expect(tiers({ memoryTiers: ['agent'] }, 'process_vm')).toEqual(['shared', 'agent']);
    expect(tiers({}, 'agent,process_vm')).toEqual(['shared', 'process_vm', 'agent']);
    expect(tiers({}, '')).toHaveLength(3);
    expect(() => tiers({}, 'agent,magic')).toThrow("unknown memory tier 'magic'");
  });

  it.each(['224.0.0.1', '255.255.255.255', 'ff02::1'])(
    '%s is no address of a device',
    (address) => {
      expect(() =>
        parseDaemonConfig({ devices: [{ name: 'a', addresses: [address] }] }, {}),
      ).toThrow(`device a: '${address}' is no address of one host`);
    },
  );

  it('some quotas or limits leave the others at their defaults', () => {
    const { quotas, devices } = parseDaemonConfig({
      quotas: { objects: { qp: 3 }, queueEntries: 5 },
      devices: [{ name: 'a', addresses: ['127.0.0.1'], profile: { maxQp: 2 } }, { name: 'b' }],
    });
    expect(quotas.objects).toEqual({ ...DEFAULT_QUOTAS.objects, qp: 3 });
    expect(quotas).toMatchObject({ queueEntries: 5, sharedBytes: DEFAULT_QUOTAS.sharedBytes });
    expect(devices[0]).toMatchObject({ profile: { maxQp: 2 }, wire: {} });
  });
});
