/** The NUMA nodes that programs see instead of the machine's, where the configuration of the rails says so. */
import { cpuMask, type MachineCpus, machineMemory } from './machine-cpus.ts';

const NODES = 'devices/system/node';
/** Distances from a node to itself and to another one, as firmware without better knowledge has them. */
const [NEAR, FAR] = [10, 20];

/** Adds files of these nodes, which hide the machine's; the machine's memory is divided among them. */
export function addNumaNodes(files: Map<string, string | Uint8Array>, cpus: MachineCpus): void {
  const { nodes, online } = cpus;
  const all = nodes.length === 1 ? '0' : `0-${nodes.length - 1}`;
  const memory = machineMemory();
  const share = (kib: number): string => `${Math.floor(kib / nodes.length)} kB`;
  for (const name of ['online', 'possible', 'has_memory', 'has_normal_memory']) {
    files.set(`${NODES}/${name}`, all);
  }
  const withCpus = nodes.filter((each) => each.cpus !== '').map(({ node }) => node);
  files.set(`${NODES}/has_cpu`, withCpus.join(','));
  for (const { node, cpus: list } of nodes) {
    const place = `${NODES}/node${node}`;
    files.set(`${place}/cpulist`, list);
    files.set(`${place}/cpumap`, cpuMask(list, online));
    files.set(
      `${place}/distance`,
      nodes.map((each) => (each.node === node ? NEAR : FAR)).join(' '),
    );
    const lines = [
      `Node ${node} MemTotal: ${share(memory.total)}`,
      `Node ${node} MemFree: ${share(memory.free)}`,
      `Node ${node} MemUsed: ${share(memory.total - memory.free)}`,
    ];
    files.set(`${place}/meminfo`, lines.join('\n'));
  }
}
