/** Processors and memory of this machine and its NUMA nodes, in the forms of sysfs. */
import { readdirSync, readFileSync } from 'node:fs';

/** Processors as a list: `0-3,8`. */
export interface MachineCpus {
  readonly online: string;
  /** By number. */
  readonly nodes: readonly { readonly node: number; readonly cpus: string }[];
}

/** Memory in KiB. */
interface MachineMemory {
  readonly total: number;
  readonly free: number;
}

const SYSTEM = '/sys/devices/system';

/** The processors of this machine. A kernel without NUMA has no nodes. */
export function machineCpus(): MachineCpus {
  const nodes = namesIn(`${SYSTEM}/node`)
    .flatMap((name) => /^node(\d+)$/.exec(name)?.[1] ?? [])
    .map((digits) => ({
      node: Number(digits),
      cpus: textOf(`${SYSTEM}/node/node${digits}/cpulist`),
    }))
    // Some have memory only.
    .filter(({ cpus }) => cpus !== '');
  nodes.sort((a, b) => a.node - b.node);
  return { online: textOf(`${SYSTEM}/cpu/online`) || '0', nodes };
}

/** The same processors in this many nodes of about the same size, in order. */
export function inNodes({ online }: MachineCpus, count: number): MachineCpus {
  const cpus = ranges(online).flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, index) => first + index),
  );
  const at = (node: number): number => Math.floor((node * cpus.length) / count);
  const nodes = Array.from({ length: count }, (_, node) => ({
    node,
    cpus: listOf(cpus.slice(at(node), at(node + 1))),
  }));
  return { online, nodes };
}

/** All memory of this machine. */
export function machineMemory(): MachineMemory {
  const text = textOf('/proc/meminfo');
  const field = (name: string) =>
    Number(new RegExp(`^${name}: +(\\d+) kB`, 'm').exec(text)?.[1] ?? 0);
  return { total: field('MemTotal'), free: field('MemFree') };
}

/** A list as the kernel's mask, with the digits that processors of `online` need: `ffff0000,0000000f`. */
export function cpuMask(list: string, online: string): string {
  let mask = 0n;
  for (const [first, last] of ranges(list)) {
    for (let cpu = first; cpu <= last; cpu++) mask |= 1n << BigInt(cpu);
  }
  const count = Math.max(...ranges(online).map(([, last]) => last + 1));
  const digits = mask.toString(16).padStart(Math.ceil(count / 4), '0');
  return digits.replace(/(?<=.)(?=(.{8})+$)/g, ',');
}

/** Ascending numbers as a list. */
function listOf(cpus: readonly number[]): string {
  const found: [first: number, last: number][] = [];
  for (const cpu of cpus) {
    const open = found.at(-1);
    if (open !== undefined && open[1] === cpu - 1) open[1] = cpu;
    else found.push([cpu, cpu]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}

function ranges(list: string): [first: number, last: number][] {
  if (list === '') return [];
  return list.split(',').map((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return [first, last];
  });
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
