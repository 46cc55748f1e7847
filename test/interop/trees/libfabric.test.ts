/**
 * libfabric's own tests, fabtests, on a RoCE device. In namespaces of their own: their script ends every process of the
 * machine whose name starts with `fi_`. Not at a loopback address: there, libfabric's provider forgets the server's port.
 */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { RunningCommand } from '#test/support/cli-process';
import { describeWithTree, treePath } from './tree.ts';

const SCRIPT = 'install/bin/runfabtests.sh';
const ADDRESS = '10.77.0.1';
/** Makes an interface with the address, and enters the folder `$0`. */
const PREPARE = `
  ip link set lo up && ip link add v0 type veth peer name v1 && ip address add ${ADDRESS}/24 dev v0 || exit
  ip link set v0 up && ip link set v1 up && cd "$0" && exec "$@"`;
const NAMESPACES = ['--net', '--pid', '--mount-proc', '--fork', '--kill-child'];
/** For the script, which sleeps most of the time. */
const SCRIPT_MS = 600_000;
const TEST_SECONDS = 60;

interface Layers {
  readonly layers: string;
  /** Tests that pass. */
  readonly passing: number;
  /** Tests that fail on any device. */
  readonly failing: readonly string[];
  readonly options: readonly string[];
}

const LAYERS: readonly Layers[] = [
  {
    layers: 'verbs',
    passing: 30,
    // Lacks the mode FI_RX_CQ_DATA, which the provider demands.
    failing: ['fi_rma_bw -e msg -o writedata -I 5'],
    // Resolves an address for an id that has one, which Linux refuses, too; its server then stays, and holds the port.
    options: ['-f', 'test_configs/verbs/verbs.exclude', '-e', 'fi_msg_sockets'],
  },
  { layers: 'verbs;ofi_rxm', passing: 52, failing: [], options: [] },
  { layers: 'verbs;ofi_rxd', passing: 49, failing: [], options: [] },
];

/** Words that run a command in the namespaces. The script finds lists of tests to leave out in its folder. */
function within(folder: string): readonly string[] {
  return ['unshare', ...NAMESPACES, 'sh', '-c', PREPARE, folder];
}

/** The script's report of its quick tests over these layers. */
async function fabtests({ layers, options }: Layers): Promise<string> {
  const run = ['run', '--fresh', '--device', `roce0=roce:${ADDRESS}`, '--'];
  // By default, datagrams use the link-local GID.
  const script = ['env', 'FI_VERBS_GID_IDX=1', treePath('libfabric', SCRIPT)];
  const ends = ['-c', '-s', '-g'].flatMap((option) => [option, ADDRESS]);
  const quick = ['-t', 'quick', '-T', String(TEST_SECONDS), '-vv', ...options, ...ends, layers];
  const words = [...run, ...script, '-p', treePath('libfabric', 'install/bin'), ...quick];
  const command = new RunningCommand(words, {}, within(treePath('libfabric', 'fabtests')));
  const { stdout, stderr } = await command.end(SCRIPT_MS);
  return `${stdout}${stderr}`;
}

const [unshare = '', ...probe] = [...within('/'), 'true'];
const apart = spawnSync(unshare, probe).status === 0;
const reason = apart ? '' : ' (this user may make no namespaces)';

describeWithTree('libfabric', [SCRIPT, 'install/bin/fi_rdm'], `fabtests${reason}`, () => {
  it.skipIf(!apart).each(LAYERS)('$layers passes, but for known faults', async (tested) => {
    const report = await fabtests(tested);
    const results = [...report.matchAll(/^- name: +(.+) -p "\S+"\n.*\n +result: (\w+)$/gm)];
    const named = (result: string): string[] =>
      results.filter(([, , each]) => each === result).map(([, name = '']) => name);
    expect(named('Fail'), report).toEqual(tested.failing);
    expect(named('Pass').length, report).toBe(tested.passing);
  });
});
