/** `iwarpd conform` over IPv6, whose loopback has one address: in a network namespace of its own. */
import { expect, it } from 'vitest';
import { commandWords, RunningCommand } from '../support/cli-process.ts';
import { documentedVerdicts, printedVerdicts } from '../support/conformance-table.ts';
import { networkNamespace } from '../support/network-namespace.ts';
import { patience } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';

/** Undefined where that is not permitted. */
const apart = networkNamespace('true');

const [PEER, TESTER] = ['fd00::1', 'fd00::2'];

const PREPARE = `
  ip link set lo up
  for address in ${PEER} ${TESTER}; do ip -6 address add $address/128 dev lo nodad; done
  exec "$@"
`;

/** Serves testers on the daemon, and tests it. Its parameters: the command, then options of the test. */
const SCRIPT = `
  iwarpd=("$1" "$2"); shift 2
  exec 3< <("\${iwarpd[@]}" conform --serve --address ::)
  serving=$!
  read -r ready <&3
  "\${iwarpd[@]}" conform --peer ${PEER} --from ${TESTER} --json "$@"
  kill $serving
`;

describeWith(['rdma-programs'], 'conform over IPv6', () => {
  it.skipIf(apart === undefined).each([
    ['RoCEv2', 'roce'],
    ['iWARP', 'iwarp'],
  ] as const)(
    'finds our devices over %s as documented (needs a network namespace)',
    async (wire, over) => {
      const within = [...(apart ?? []), 'sh', '-c', PREPARE, 'sh'];
      const devices = ['--device', `roce0=roce:${PEER}`, '--device', `iwarp0=${PEER}`];
      const daemon = ['run', '--fresh', '--network', 'host', ...devices];
      const test = ['--over', over, '--patience', String(patience(2000))];
      const script = ['bash', '-c', SCRIPT, 'bash', ...commandWords([]), ...test];
      const ended = await new RunningCommand([...daemon, '--', ...script], {}, within).end();
      const { verdicts, details } = printedVerdicts(ended.stdout);
      expect(verdicts, details.join('\n')).toEqual(documentedVerdicts(wire, 'iwarpd'));
    },
  );
});
