/** DAPL's test programs over its providers of verbs: by rdma_cm, and by a TCP connection of their own. */
import { writeFileSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { CommandFolder, commandWords, runCommand } from '../support/cli-process.ts';
import { programSeconds } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';

const ROCE = '127.0.0.2';
const IWARP = '127.0.0.1';
/** The registry of providers: the second part of a line names what the first part opens. */
const PROVIDERS = [
  ['roce', 'libdaplofa', `${ROCE} 0`],
  ['iwarp', 'libdaplofa', `${IWARP} 0`],
  ['roce-by-tcp', 'libdaploscm', 'roce0 1'],
] as const;

const folder = new CommandFolder();
const socket = () => folder.file('d/s');

afterEach(() => folder.clean());

/** Starts a daemon. */
async function start(): Promise<void> {
  const devices = ['--device', `roce0=roce:${ROCE}`, '--device', `iwarp0=${IWARP}`];
  await folder.daemon(socket(), devices);
  const lines = PROVIDERS.map(([name, library, opens]) => {
    return `${name} u2.0 nonthreadsafe default ${library}.so.2 dapl.2.0 "${opens}" ""\n`;
  });
  writeFileSync(folder.file('dat.conf'), lines.join(''));
}

/** The output of a client that runs beside its server until both have ended. */
async function both(server: string, client: string): Promise<string> {
  const script = `cd ${folder.path}
    ${server} >server 2>&1 &
    until ${client} >client 2>&1; do ! grep -q '[Cc]onnect' client || sleep 0.1; done
    wait
    cat server client`;
  const shell = ['timeout', String(programSeconds()), 'sh', '-c', script];
  const words = ['run', '--socket', socket(), '--', ...shell];
  const done = await runCommand(words, { DAT_OVERRIDE: folder.file('dat.conf') });
  expect(done.status, done.stdout).toBe(0);
  return done.stdout;
}

/**
 * Sends, Writes and Reads of two threads with an endpoint each; the data of all are checked (`-V`). The wire is good
 * again when the server is ended: if that request is acknowledged in vain, no server is left to repeat it.
 */
function transactions(provider: string, address: string): Promise<string> {
  const place = `-s ${address} -D ${provider}`;
  const operations = 'client SR 5000 2 server SR 3000 2 client RW 40000 1 server RR 9000 1';
  const repair = commandWords(['fault', 'remove', '--all', '--socket', socket()]).join(' ');
  const client = [
    `dapltest -T T ${place} -t 2 -w 1 -i 100 -V ${operations}`,
    `${repair} >/dev/null`,
    `dapltest -T Q ${place}`,
  ];
  return both(`dapltest -T S -D ${provider}`, client.join(' && '));
}

describeWith(['dapl'], 'DAPL', () => {
  it.each([
    ['roce', ROCE, ['drop', '--device', 'roce0', '--probability', '0.001']],
    ['iwarp', IWARP, ['slice', '--device', 'iwarp0', '--bytes', '700']],
  ])(
    'moves checked data over %s by rdma_cm, though the wire is bad',
    async (provider, address, fault) => {
      await start();
      const words = ['fault', 'add', ...fault, '--socket', socket()];
      const added = await runCommand(words);
      expect(added.status, added.stderr).toBe(0);
      const output = await transactions(provider, address);
      expect(output).toMatch(/Total RDMA Write :\s+8\.00 MB/);
      expect(output).not.toMatch(/error|warning|bad|fail/i);
    },
  );

  it('runs its own test over RoCE, connected by TCP', async () => {
    await start();
    const test = 'dtest -P roce-by-tcp -b 65536 -B 100';
    const output = await both(test, `${test} -h 127.0.0.1`);
    expect(output.match(/DAPL Test Complete. PASSED/g)).toHaveLength(2);
  });
});
