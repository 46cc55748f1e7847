/**
 * System calls of a device for each queue pair, connection, message, and packet of a stranger. Nothing
 * that arrives may cause a query: listing the machine's interfaces costs as much as hundreds of packets,
 * and fails without a free descriptor.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { networkNamespace } from '../support/network-namespace.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Repetitions in each phase of counted-calls.ts. */
const TIMES = 32;
/** Calls that move bytes, wait, or belong to memory and threads; all others query something. */
const CARRIES = new RegExp(
  '^\\d+ +(epoll_|p?poll|futex|m(un|re)?map|mprotect|madvise|brk|rt_sig|clock_|gettimeofday|getpid|sched_|' +
    'sendmmsg|recvmmsg|sendmsg|recvmsg|sendto|recvfrom|p?readv?|p?writev?|process_vm_|restart_)',
);

/** Runs a command in a network namespace that may be traced; undefined if not permitted. */
const apart = networkNamespace('strace', '-o', '/dev/null', 'true');

/**
 * A device for every address takes only the first address: the interface of the others has no
 * carrier.
 */
const PREPARE = `
  ip link set lo up
  ip address add 198.18.9.1/32 dev lo
  ip link add quiet type veth peer name silent
  ip address add 198.18.9.2/32 dev quiet
  ip address add 198.18.9.3/32 dev quiet
  ip link set quiet up
  exec "$@"
`;

const folder = temporaryFolder();

/** Runs a program of this folder in that namespace; returns its output. */
function run(words: readonly string[], program: string, ...given: readonly string[]): string {
  const path = join(repositoryRoot(), `dist/test/e2e/${program}.js`);
  const within = [...(apart ?? []), 'sh', '-c', PREPARE, 'sh', ...words, process.execPath, path];
  const [command = '', ...rest] = [...within, ...given];
  const { status, stdout, stderr } = spawnSync(command, rest, { encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return stdout;
}

/** The lines of strace; a call interrupted by another thread's is one line, where it ends. */
function wholeCalls(log: string): string[] {
  const begun = new Map<string | undefined, string>();
  return log.split('\n').flatMap((line) => {
    const [, start, of] = /^((\d+) .*) <unfinished \.\.\.>$/.exec(line) ?? [];
    if (start !== undefined) {
      begun.set(of, start);
      return [];
    }
    const [, thread, end = ''] = /^(\d+) +<\.\.\. \w+ resumed>(.*)$/.exec(line) ?? [];
    return [thread === undefined ? line : `${begun.get(thread) ?? thread}${end}`];
  });
}

/** The lines without the calls of the test program's own waits, which read the machine's load. */
function withoutLoad(lines: readonly string[]): string[] {
  let look: string | undefined;
  return lines.filter((line) => {
    look ??= /"\/proc\/loadavg".* = (\d+)$/.exec(line)?.[1];
    if (look === undefined) return true;
    const isOfLook = line.includes('"/proc/loadavg"') || line.includes(`(${look},`);
    if (!line.includes(`close(${look})`)) return !isOfLook;
    look = undefined;
    return false;
  });
}

/** The cost of one of `TIMES` in a phase: calls, and reads of the machine's interfaces. */
type Asked = readonly [calls: number, looks: number];

/** The costs of each phase for a kind of device. */
function askedBy(kind: string): Record<string, Asked> {
  const log = join(folder, 'log');
  run(['strace', '-f', '-qq', '-o', log], 'counted-calls', kind, String(TIMES));
  const phases: Record<string, [calls: number, looks: number]> = {};
  let counts: [number, number] = [0, 0];
  for (const line of withoutLoad(wholeCalls(readFileSync(log, 'utf8')))) {
    const marked = /"\/phase\/([^"]*)"/.exec(line)?.[1];
    if (marked !== undefined) {
      counts = [0, 0];
      if (marked !== 'none') phases[marked] = counts;
    } else if (/^\d+ +[a-z]/.test(line) && !CARRIES.test(line)) {
      counts[0] += 1;
      if (/ bind\(.*AF_NETLINK/.test(line)) counts[1] += 1;
    }
  }
  // A call at the end of a V8 thread does not count for each repetition.
  const one = (count: number): number => Math.floor(count / TIMES);
  return Object.fromEntries(
    Object.entries(phases).map(([name, [calls, looks]]) => [name, [one(calls), one(looks)]]),
  );
}

/** Node.js newer than 20 queries its processors now and then. */
const OF_NODE = Number(process.versions.node.split('.')[0]) > 20 ? 1 : 0;

/** Commands move queue pairs and make connections, so each may query a route; messages may not. */
const NOTHING: Asked = [0, 0];
const ARRIVALS = {
  messages: NOTHING,
  'datagrams of a stranger': NOTHING,
  'requests of a stranger': NOTHING,
};

describeWith(['strace', 'sctp'], 'system calls of a device', () => {
  it.skipIf(apart === undefined).each<[string, Record<string, Asked>]>([
    ['RoCE, an address', { 'queue pairs': [4, 0], connections: [16, 0], ...ARRIVALS }],
    // The machine chooses a source that the device lacks; the device checks whether it is new.
    ['RoCE, every address', { 'queue pairs': [4, 0], connections: [20, 1], ...ARRIVALS }],
    ['RoCE, within the host', { 'queue pairs': NOTHING, connections: NOTHING, messages: NOTHING }],
    [
      'RoCE, every address within the host',
      { 'queue pairs': NOTHING, connections: NOTHING, messages: NOTHING },
    ],
    // Node.js makes the calls for sockets; its versions differ a little.
    ['memory', { connections: [22, 0], messages: NOTHING }],
    ['TCP', { connections: [50, 0], messages: NOTHING }],
    ['SCTP', { connections: [12, 0], messages: NOTHING, 'requests of a stranger': NOTHING }],
  ])('are limited in number: %s (needs a network namespace and ptrace)', (kind, most) => {
    const asked = askedBy(kind);
    expect(Object.keys(asked)).toEqual(Object.keys(most));
    for (const [name, [calls, looks]] of Object.entries(asked)) {
      const margin = name === 'connections' ? OF_NODE : 0;
      expect(calls, `calls for ${name}`).toBeLessThanOrEqual((most[name]?.[0] ?? 0) + margin);
      expect(looks, `looks for ${name}`).toBeLessThanOrEqual(most[name]?.[1] ?? 0);
    }
  });
});

describeWith(['strace'], 'a process without a free descriptor', () => {
  it.skipIf(apart === undefined)(
    'accepts packets of strangers for a device at every address (needs a network namespace)',
    () => {
      const few = ['sh', '-c', 'ulimit -n 128 && exec "$@"', 'sh'];
      // One datagram arrived before.
      expect(run(few, 'no-descriptor', '198.18.9.1', '198.18.9.3')).toBe('EMFILE: 9 0');
    },
  );
});
