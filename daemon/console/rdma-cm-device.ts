/** The device of a daemon that rdma_cm uses, read from the device tree. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The first device that connects by rdma_cm, if the first device of the tree does not: programs that
 * use the first one then need its name. Also undefined if the tree cannot be read.
 */
export function rdmaCmDevice(sysfs: string): string | undefined {
  const verbs = join(sysfs, 'class/infiniband_verbs');
  try {
    const nodes = readdirSync(verbs).filter((name) => /^uverbs\d+$/.test(name));
    nodes.sort((a, b) => numberOf(a) - numberOf(b));
    const names = nodes.map((node) => readFileSync(join(verbs, node, 'ibdev'), 'utf8').trim());
    const connected = names.findIndex((name) => {
      if (!/^[\w.-]{1,63}$/.test(name)) return false;
      const type = readFileSync(join(sysfs, 'class/infiniband', name, 'node_type'), 'utf8');
      return type.trim() === '4: RNIC';
    });
    return connected > 0 ? names[connected] : undefined;
  } catch {
    return undefined;
  }
}

function numberOf(node: string): number {
  return Number(node.slice('uverbs'.length));
}
