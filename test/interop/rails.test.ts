/** Rails, RoCE devices that are PCI functions, as programs that look at the machine find them. */
import { writeFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';

const folder = new CommandFolder();

afterEach(() => folder.clean());

/** Output of a shell command under `iwarpd run --fresh` with these options. */
async function run(options: readonly string[], script: string): Promise<string> {
  const words = ['run', '--fresh', ...options, '--', 'bash', '-c', script];
  const { status, stdout, stderr } = await runCommand(words);
  expect(status, `${stdout}${stderr}`).toBe(0);
  expect(stderr).not.toContain('No such file');
  return stdout;
}

describeWith(['rdma-programs'], 'rails', () => {
  it('are PCI functions by every path that leads to them', async () => {
    const paths = [
      '/sys/class/infiniband/roce1/device',
      '/sys/class/infiniband/roce1/../..',
      '/sys/class/infiniband_verbs/uverbs1/device',
      '/sys/class/net/rail1/device',
      '/sys/bus/pci/devices/1000:02:00.0',
      '/sys/class/pci_bus/1000:02/../../1000:02:00.0',
    ];
    const output = await run(['--rails', '2'], `realpath ${paths.join(' ')}`);
    const place = '/sys/devices/pci1000:02/1000:02:00.0';
    expect(output.trim().split('\n')).toEqual(paths.map(() => place));
  });

  it("are listed beside the machine's own interfaces", async () => {
    const output = await run(['--rails', '1'], 'ls -l /sys/class/infiniband /sys/class/net');
    expect(output).toContain('roce0 -> ../../devices/pci1000:01/1000:01:00.0/infiniband/roce0');
    expect(output).toContain('rail0 -> ../../devices/pci1000:01/1000:01:00.0/net/rail0');
    expect(output).toContain('lo -> /sys/devices/virtual/net/lo');
  });

  it('say the same in sysfs, verbs and netlink', async () => {
    const config = folder.file('rails.json');
    const rails = { count: 2, names: 'mlx5_%d', rate: 200, pci: ['aa00:3b:00.0', 'aa00:3b:00.1'] };
    writeFileSync(config, JSON.stringify({ rails }));
    const show =
      'cat /sys/class/infiniband/mlx5_1/ports/1/rate; ibv_devinfo -v -d mlx5_1; rdma link';
    const output = await run(['--config', config], show);
    expect(output).toContain('200 Gb/sec (4X HDR)');
    expect(output).toMatch(/active_width:\s+4X \(2\)/);
    expect(output).toMatch(/active_speed:\s+50.0 Gbps \(64\)/);
    expect(output).toMatch(/GID\[ +1\]:\s+::ffff:127\.0\.0\.2/);
    expect(output).toMatch(/link mlx5_1\/1 state ACTIVE .*netdev rail1/);
  });

  it('carry data, each by its own address', async () => {
    const script = `
rping -s -a 127.0.0.2 -C 1 & sleep 0.5
rping -c -a 127.0.0.2 -C 1 -v; wait
cd /sys/class/infiniband
until grep -q '[1-9]' roce1/ports/1/counters/port_xmit_data; do sleep 0.1; done
head -n 1 roce{0,1,2}/ports/1/counters/port_xmit_packets`;
    const output = await run(['--rails', '3'], script);
    expect(output).toContain('rdma-ping-0');
    // The client has the first address.
    expect(output).toMatch(/roce0\S+ <==\n[1-9]/);
    expect(output).toMatch(/roce1\S+ <==\n[1-9]/);
    expect(output).toMatch(/roce2\S+ <==\n0\n/);
  });
});

describeWith(['rdma-programs'], 'devices that are no rails', () => {
  it('are listed by the same calls, and are no PCI functions', async () => {
    const output = await run(
      [],
      `ls -l /sys/class/infiniband; ls -x /dev/infiniband; cat /sys/class/infiniband/*/ports/1/rate
realpath /sys/class/infiniband/roce0/device; ls -d /sys/class/infiniband/*/hca_type 2>/dev/null || true`,
    );
    expect(output).toMatch(/^drwx.* iwarp0\ndrwx.* roce0$/m);
    expect(output).toMatch(/^rdma_cm +uverbs0 +uverbs1$/m);
    expect(output).toContain('2.5 Gb/sec (1X SDR)\n2.5 Gb/sec (1X SDR)\n');
    expect(output).toContain('/sys/class/infiniband/roce0/device');
    expect(output).not.toContain('hca_type');
  });
});

describeWith(['perftest', 'rdma-programs'], 'perftest', () => {
  it('reads all PCI functions by libpci, and runs between two rails', async () => {
    const port = await freePort();
    const options = `-F -x 1 -n 20 -p ${port}`;
    const script = `
ib_send_lat -d roce0 ${options} > /dev/null & server=$!
until grep -q "$(printf ':%04X .* 0A ' ${port})" /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done
ib_send_lat -d roce1 ${options} 127.0.0.1 && wait $server`;
    const output = await run(['--rails', '2'], script);
    expect(output).toMatch(/Device +: roce1\n/);
    expect(output).toMatch(/^ 2 +20 /m);
  });
});

/** Whether rdma-core takes the first device for an mlx5. */
const IS_MLX5 = `
#include <infiniband/mlx5dv.h>
#include <stdio.h>
int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  printf("mlx5dv: %d\\n", mlx5dv_is_supported(list[0]));
}`;

describeWith(['rdma-programs', 'native'], 'rails with the identity of a ConnectX-7', () => {
  const start = (script: string): Promise<string> => {
    const config = folder.file('rails.json');
    writeFileSync(config, JSON.stringify({ rails: { count: 2, identity: 'connectx7' } }));
    return run(['--config', config], script);
  };

  it('say so in verbs, netlink and sysfs', async () => {
    const files = 'device/{vendor,device,subsystem_device} {fw_ver,hca_type,board_id}';
    const words = files.split(' ').map((name) => `/sys/class/infiniband/mlx5_0/${name}`);
    const output = await start(`ibv_devinfo -d mlx5_0; rdma dev; cat ${words.join(' ')}`);
    expect(output).toMatch(/fw_ver:\s+28\.43\.1014\n/);
    expect(output).toMatch(/vendor_id:\s+0x02c9\n/);
    expect(output).toMatch(/vendor_part_id:\s+4129\n/);
    expect(output).toMatch(/board_id:\s+MT_0000000838\n/);
    expect(output).toMatch(/1: mlx5_1: node_type ca fw 28\.43\.1014/);
    expect(output).toContain('0x15b3\n0x1021\n0x0023\n28.43.1014\nMT4129\nMT_0000000838\n');
  });

  it('are no mlx5 devices to rdma-core, and work', async () => {
    const source = folder.file('is-mlx5.c');
    writeFileSync(source, IS_MLX5);
    const program = folder.file('is-mlx5');
    const output = await start(`
cc ${source} -o ${program} -lmlx5 -libverbs && ${program}
rping -s -a 127.0.0.2 -C 1 & sleep 0.5
rping -c -a 127.0.0.2 -C 1 -v; wait`);
    expect(output).toContain('mlx5dv: 0');
    expect(output).toContain('rdma-ping-0');
  });
});

describeWith(['rdma-programs', 'hwloc'], 'hwloc', () => {
  it('finds rails as PCI devices, beside those of the machine', async () => {
    const output = await run(['--rails', '2'], 'lstopo-no-graphics --of console --whole-io');
    for (const rail of [0, 1]) {
      expect(output).toMatch(
        new RegExp(
          `PCI 1000:0${rail + 1}:00\\.0 \\(Ethernet\\)\\s+Net "rail${rail}"\\s+OpenFabrics "roce${rail}"`,
        ),
      );
    }
  });

  it('finds the nodes that the daemon shows, each with its rails', async () => {
    const output = await run(
      ['--rails', '4', '--numa-nodes', '2'],
      'lstopo-no-graphics --of console; cat /sys/devices/system/node/{online,node*/distance}',
    );
    const found = [...output.matchAll(/NUMANode L#\d|"roce\d"/g)].map(([word]) => word);
    // With one processor, the first node has none.
    expect(found).toHaveLength(6);
    expect(found.slice(-3)).toEqual(['NUMANode L#1', '"roce2"', '"roce3"']);
    expect(output).toContain('0-1\n10 20\n20 10\n');
  });
});

describeWith(['rdma-programs', 'ucx-perftest'], 'UCX', () => {
  it('sees a device of the system in each rail', async () => {
    const output = await run(['--rails', '2'], 'ucx_info -d');
    expect(output).toMatch(/System device: roce0 \(\d+\)/);
    expect(output).toMatch(/System device: roce1 \(\d+\)/);
  });
});

describe('wrong rails', () => {
  it.each<[object, RegExp]>([
    [{ count: 65 }, /rails\.count: /],
    [{ count: 2, numa: [0, 5000] }, /rails\.numa\.1: /],
    [{ count: 1, pci: ['zz'] }, /rails\.json:\d+:\d+: option rails\.pci: 'zz' is no PCI address/],
    [{ count: 1, interfaces: 'l%d', speed: 1 }, /rails\.speed: unknown field/],
    [{ count: 1, addresses: ['127.0.0.1x'] }, /roce0: '127\.0\.0\.1x' is not an IP address/],
  ])('are refused: %j', async (rails, message) => {
    const config = folder.file('rails.json');
    writeFileSync(config, JSON.stringify({ rails }));
    const { status, stderr } = await runCommand(['start', '--instance', 'x', '--config', config]);
    expect(status).not.toBe(0);
    expect(stderr).toMatch(message);
  });
});
