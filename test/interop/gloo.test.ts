/** gloo, PyTorch's collectives, over its transport of verbs: rings of processes that add up their arrays. */
import { mkdtempSync } from 'node:fs';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { shimVariables } from '#daemon/console/shim-environment';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { patience, programSeconds } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileCppProgram } from './c-programs.ts';

const ROUNDS = 5;
/** Rounds of a ring that does not end on its own. */
const MANY_ROUNDS = 1_000_000;
/** How long a process of such a ring waits for its neighbour, which does not say that it ends. */
const IMPATIENT_SECONDS = Math.ceil(patience(5_000) / 1000);

const folder = new CommandFolder();
const socket = () => folder.file('d/s');
let program: string;
let ranks: ShimProgram[] = [];

/** Starts the ranks of a ring. A rank fails when it waits for another for more than `seconds`. */
function startRing(count: number, rounds: number, seconds = programSeconds()): void {
  const meetings = mkdtempSync(folder.file('meetings-'));
  ranks = Array.from({ length: count }, (_, rank) => {
    const words = [rank, count, 'roce0', 1, meetings, rounds, seconds].map(String);
    return new ShimProgram([program, ...words], shimVariables(socket(), {}));
  });
}

describeWith(['gloo'], 'gloo', () => {
  beforeAll(() => {
    program = compileCppProgram('gloo-ring', ['-lgloo']);
  });

  afterEach(async () => {
    await Promise.all(ranks.splice(0).map((rank) => rank.kill()));
    await folder.clean();
  });

  it.each([
    [2, 'no packet is lost', []],
    [4, 'one packet in a thousand is lost', ['--probability', '0.001']],
    [8, 'no packet is lost', []],
  ])('adds up the arrays of %i processes while %s', async (count, _, loss) => {
    await folder.daemon(socket(), ['--device', 'roce0=roce']);
    if (loss.length > 0) {
      const words = ['fault', 'add', 'drop', ...loss, '--socket', socket()];
      expect((await runCommand(words)).status).toBe(0);
    }
    startRing(count, ROUNDS);
    for (const rank of ranks) {
      const { status, output } = await rank.end();
      expect(status, output).toBe(0);
      expect(output).toMatch(/: 5 rounds are right\n$/);
    }
  });

  it('ends with an error in every process when one is killed', async () => {
    await folder.daemon(socket(), ['--device', 'roce0=roce']);
    startRing(4, MANY_ROUNDS, IMPATIENT_SECONDS);
    for (const rank of ranks) await rank.until(/round 1 is right/);
    await ranks[2]?.kill();
    const ended = await Promise.all(ranks.map((rank) => rank.end()));
    for (const { status, signal, output } of ended) {
      if (signal !== undefined) continue;
      expect(status, output).toBe(1);
      expect(output).toMatch(/rank \d: .*gloo\/transport\/ibverbs/);
    }
  });
});
