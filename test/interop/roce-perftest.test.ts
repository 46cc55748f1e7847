/**
 * Runs unmodified perftest command lines, both ends on a RoCE device of one daemon, with and without -R
 * (rdma_cm). Each must end with the exit statuses that were recorded on the kernel's rxe.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { type EndedProgram, listens, ShimProgram } from '../support/shim-programs.ts';

const RECORDED = new URL('../vectors/roce/perftest-rxe.tsv', import.meta.url);

interface Line {
  readonly command: string;
  /** Exit statuses of both ends. */
  readonly client: number;
  readonly server: number;
}

const LINES: readonly Line[] = readFileSync(RECORDED, 'utf8')
  .split('\n')
  .filter((text) => text !== '' && !text.startsWith('#') && !text.startsWith('command\t'))
  .map((text) => {
    const [command = '', client, server] = text.split('\t');
    return { command, client: Number(client), server: Number(server) };
  });
const CASES = LINES.map((line) => [line.command, line] as const);
const ADDRESS = '127.0.72.4';

let rig: RoceRig;

/** Runs both ends. */
async function run(
  command: string,
): Promise<readonly [client: EndedProgram, server: EndedProgram]> {
  const port = await freePort();
  const words = [...command.split(' '), '-F', '-p', String(port)];
  const server = new ShimProgram(words, rig.environment);
  // A server that refuses its options never listens. Its client then refuses them, too.
  if (words.includes('-R')) while (server.running && !rig.listens(port)) await quiet(5);
  else await listens(port, server).catch(() => undefined);
  const client = new ShimProgram([...words, ADDRESS], rig.environment);
  return Promise.all([client.end(), server.end()]);
}

describeWith(['perftest'], 'perftest over RoCE ends as on rxe', () => {
  beforeAll(async () => {
    rig = await RoceRig.start({ name: 'roce0', addresses: [ADDRESS], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  it('has all lines', () => {
    expect(LINES).toHaveLength(83);
    expect(LINES.filter(({ command }) => command.split(' ').includes('-R'))).toHaveLength(11);
  });

  it.each(CASES)('%s', async (command, line) => {
    const [client, server] = await run(command);
    const output = `client:\n${client.output}\nserver:\n${server.output}`;
    expect(client.status, output).toBe(line.client);
    expect(server.status, output).toBe(line.server);
  });
});
