import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  judgeBridge,
  judgeDevices,
  judgeLinks,
  judgeMemlock,
  judgeModules,
  judgeNodes,
  type ModuleState,
  type RealDevice,
  readModules,
  readRealDevices,
} from '#daemon/cli/doctor/devices';
import { temporaryFolder } from '#test/support/temporary-folder';

const SIW: RealDevice = {
  name: 'siw0',
  nodeType: 'RNIC',
  description: 'Software iWARP stack',
  node: 'uverbs0',
  ports: [{ number: '1', state: 'ACTIVE', physicalState: 'LinkUp', interfaces: ['eth0'] }],
};

function modules(siw: ModuleState, others: ModuleState): ReadonlyMap<string, ModuleState> {
  const common = ['ib_core', 'ib_uverbs', 'rdma_cm', 'rdma_ucm'].map(
    (name) => [name, others] as const,
  );
  return new Map([...common, ['siw', siw]]);
}

describe('a file tree as the kernel shows it', () => {
  let root: string;

  beforeEach(() => {
    root = temporaryFolder();
  });

  function put(files: Readonly<Record<string, string>>): void {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, name)), { recursive: true });
      writeFileSync(join(root, name), text);
    }
  }

  it('has no devices, and no modules', () => {
    expect(readRealDevices(root)).toEqual([]);
    expect(readModules(root, '6.1')).toEqual(modules('absent', 'absent'));
  });

  it('reports which modules are loaded, built in, or available', () => {
    put({
      'sys/module/ib_core/refcnt': '3',
      'lib/modules/6.1/modules.builtin': 'kernel/drivers/infiniband/core/rdma_cm.ko\n',
      'lib/modules/6.1/modules.dep':
        'kernel/drivers/infiniband/core/ib_uverbs.ko.xz: x.ko\nkernel/net/my_siw.ko:\n',
    });
    expect(Object.fromEntries(readModules(root, '6.1'))).toEqual({
      ib_core: 'loaded',
      ib_uverbs: 'available',
      rdma_cm: 'loaded',
      rdma_ucm: 'absent',
      siw: 'absent',
    });
  });

  it('has a siw with a GID that begins with the MAC address of its interface', () => {
    const port = 'sys/class/infiniband/siw0/ports/1';
    put({
      'sys/class/infiniband/siw0/node_type': '4: RNIC\n',
      'sys/class/infiniband/siw0/node_desc': 'Software iWARP stack\n',
      [`${port}/state`]: '4: ACTIVE\n',
      [`${port}/phys_state`]: '5: LinkUp\n',
      [`${port}/gids/0`]: '5254:0012:3456:0000:0000:0000:0000:0000\n',
      'sys/class/infiniband_verbs/abi_version': '6\n',
      'sys/class/infiniband_verbs/uverbs0/ibdev': 'siw0\n',
      'sys/class/net/lo/address': '00:00:00:00:00:00\n',
      'sys/class/net/eth0/address': '52:54:00:12:34:56\n',
    });
    expect(readRealDevices(root)).toEqual([SIW]);
  });

  it('has an adapter that names its interfaces itself', () => {
    put({
      'sys/class/infiniband/mlx5_0/node_type': '1: CA\n',
      'sys/class/infiniband/mlx5_0/device/net/ens1/address': 'x',
      'sys/class/infiniband/mlx5_0/ports/1/state': '1: DOWN\n',
    });
    expect(readRealDevices(root)).toMatchObject([
      { nodeType: 'CA', node: undefined, ports: [{ state: 'DOWN', interfaces: ['ens1'] }] },
    ]);
  });
});

describe('kernel modules', () => {
  it('are all loaded', () => {
    expect(judgeModules(modules('loaded', 'loaded'))).toEqual({
      state: 'ok',
      text: 'loaded: ib_core, ib_uverbs, rdma_cm, rdma_ucm, siw',
    });
    expect(judgeModules(modules('available', 'loaded')).fix).toContain('modprobe siw');
  });

  it('may be unloaded without a warning', () => {
    expect(judgeModules(modules('available', 'available'))).toEqual({
      state: 'info',
      text: 'not loaded: ib_core, ib_uverbs, rdma_cm, rdma_ucm, siw',
      fix: 'modprobe -a ib_core ib_uverbs rdma_cm rdma_ucm siw',
    });
  });

  it('are unknown, as in a container', () => {
    const finding = judgeModules(modules('absent', 'absent'));
    expect(finding.state).toBe('info');
    expect(finding.fix).toContain('in a container');
  });

  it('are partly available', () => {
    const half = new Map([...modules('loaded', 'loaded'), ['rdma_ucm', 'available'] as const]);
    expect(judgeModules(half)).toEqual({
      state: 'warn',
      text: 'not loaded: rdma_ucm',
      fix: 'modprobe -a rdma_ucm',
    });
  });
});

describe('real devices', () => {
  it('are listed with their type', () => {
    expect(judgeDevices([SIW]).text).toContain('siw0 (RNIC, Software iWARP stack)');
    expect(judgeDevices([SIW]).text).not.toContain('only an RNIC');
    const adapter = { ...SIW, name: 'mlx5_0', nodeType: 'CA', description: '' };
    expect(judgeDevices([adapter]).text).toMatch(/mlx5_0 \(CA\); .*only an RNIC can connect/);
  });

  it('are missing, and can be created', () => {
    expect(judgeDevices([])).toMatchObject({ state: 'info' });
    expect(judgeDevices([]).fix).toContain('rdma link add siw0');
  });
});

describe('the native bridge', () => {
  const version = '1.14.44.0';

  it('shows the devices that the library lists', () => {
    expect(judgeBridge(['siw0'], { version, seen: ['siw0'] })).toEqual({
      state: 'ok',
      text: 'libibverbs 1.14.44.0 loads, and lists siw0',
    });
    expect(judgeBridge([], { version, seen: [] }).text).toContain('lists no device');
  });

  it('lacks a provider', () => {
    const finding = judgeBridge(['siw0', 'mlx5_0'], { version, seen: ['siw0'] });
    expect(finding).toMatchObject({ state: 'warn' });
    expect(finding.text).toContain('no provider for mlx5_0');
    expect(finding.fix).toContain('ibverbs-providers');
  });

  it('finds no libraries, which matters only if there is a device', () => {
    const bridge = { failure: 'libibverbs.so.1 cannot be loaded' };
    expect(judgeBridge([], bridge)).toMatchObject({ state: 'info', text: bridge.failure });
    expect(judgeBridge(['siw0'], bridge)).toMatchObject({ state: 'warn', text: bridge.failure });
  });
});

describe('device nodes', () => {
  const nodes = ['/dev/infiniband/uverbs0', '/dev/infiniband/rdma_cm'];

  it('can all be opened', () => {
    const opened: string[] = [];
    const finding = judgeNodes([SIW], (path) => {
      opened.push(path);
      return undefined;
    });
    expect(finding).toEqual({ state: 'ok', text: `accessible: ${nodes.join(', ')}` });
    expect(opened).toEqual(nodes);
  });

  it.each([
    ['ENOENT', /docker run --device/],
    ['EACCES', /0666/],
    ['EPERM', /container forbids/],
    ['ENXIO', /load ib_uverbs/],
  ])('are refused with %s, each for its own reason', (code, fix) => {
    const finding = judgeNodes([SIW], () => code);
    expect(finding.state).toBe('warn');
    expect(finding.text).toBe(nodes.map((path) => `${path}: ${code}`).join(', '));
    expect(finding.fix).toMatch(fix);
  });

  it('are not created for a device without ib_uverbs', () => {
    const finding = judgeNodes([{ ...SIW, node: undefined }], () => undefined);
    expect(finding).toMatchObject({ state: 'warn', fix: 'modprobe ib_uverbs' });
  });

  it('lack only rdma_cm', () => {
    const finding = judgeNodes([SIW], (path) => (path.endsWith('cm') ? 'ENOENT' : undefined));
    expect(finding.text).toBe('/dev/infiniband/rdma_cm: ENOENT');
    expect(finding.fix).toContain('modprobe rdma_ucm');
  });
});

describe('links', () => {
  function withPort(port: Partial<RealDevice['ports'][number]>): RealDevice {
    return { ...SIW, ports: SIW.ports.map((each) => ({ ...each, ...port })) };
  }

  it('are up on an interface with an address', () => {
    expect(judgeLinks([SIW], ['lo', 'eth0'])).toEqual({
      state: 'ok',
      text: 'siw0/1 ACTIVE LinkUp on eth0',
    });
  });

  it.each([
    ['down', withPort({ state: 'DOWN' }), 'ip link set eth0 up'],
    ['without an address', withPort({ interfaces: ['eth1'] }), 'ip addr add'],
    ['of another namespace', withPort({ interfaces: [] }), 'network namespace'],
  ])('are %s', (_, device, fix) => {
    const finding = judgeLinks([SIW, device], ['eth0']);
    expect(finding.state).toBe('warn');
    expect(finding.fix).toContain(fix);
  });
});

describe('locked memory', () => {
  const small = 'Max locked memory         8388608              8388608              bytes     ';
  const unlimited = small.replaceAll('8388608  ', 'unlimited');

  it('matters only for real devices', () => {
    expect(judgeMemlock(small, false)).toMatchObject({ state: 'info' });
    expect(judgeMemlock(small, true)).toMatchObject({ state: 'warn' });
    expect(judgeMemlock(small, true).text).toContain('8388608');
    expect(judgeMemlock(small, true).fix).toContain('ulimit -l');
    expect(judgeMemlock(unlimited, true)).toEqual({ state: 'ok', text: 'unlimited' });
  });
});
