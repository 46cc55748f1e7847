/** The harness itself: reproduces, minimises and distributes inputs, and runs every target. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { noteWork } from '#daemon/host/turn-note';
import { Draws } from '../support/draws.ts';
import { judgeBatch, runBatch } from './batch.ts';
import { repositoryRoot } from './corpus.ts';
import { GrowthWatch } from './growth.ts';
import { shareInputs } from './long-run.ts';
import { minimise } from './minimise.ts';
import { TARGETS, targetsNamed } from './registry.ts';
import { lookAt, type ProcessLook, SilenceWatch } from './silence-watch.ts';
import { claim, type FuzzTarget } from './target.ts';

/** A target that fails on two consecutive numbers that are too large. */
function toy(run: (draws: Draws) => string | Promise<string>): FuzzTarget {
  return {
    name: 'toy',
    about: 'fails on request',
    batchInputs: 500,
    weight: 1,
    smokeInputs: 1,
    canary: { plant: () => () => undefined, inputs: 1 },
    open: () => ({ run, close: () => undefined }),
  };
}

const TWO_LARGE = toy((draws) => {
  const numbers = Array.from({ length: draws.below(20) }, () => draws.below(1000));
  numbers.reduce((before, number) => {
    claim(before < 900 || number < 900, 'two large numbers');
    return number;
  }, 0);
  draws.show(numbers.join(' '));
  return 'small';
});

function drawn(draws: Draws, count: number): number[] {
  return Array.from({ length: count }, () => draws.next());
}

describe('the harness', () => {
  it('draws the same numbers for the same input and different ones for another', () => {
    const draws = new Draws();
    const sequences = [
      [1, 0],
      [1, 0],
      [1, 1],
      [2, 0],
    ].map(([seed = 0, input = 0]) => {
      draws.seed(seed, input);
      return drawn(draws, 20).join();
    });
    expect(sequences[1]).toBe(sequences[0]);
    expect(new Set(sequences).size).toBe(3);
  });

  it('replays a tape as recorded, with zeros after its end', () => {
    const draws = new Draws();
    draws.seed(7, 3, true);
    const numbers = drawn(draws, 5);
    draws.play(draws.tape.slice());
    expect(drawn(draws, 7)).toEqual([...numbers, 0, 0]);
  });

  it('finds a failing input reproducibly and minimises it', async () => {
    const { finding } = await judgeBatch(TWO_LARGE, 1);
    expect(finding?.text).toBe('two large numbers');
    let tape: readonly number[] = [];
    const again = await runBatch(TWO_LARGE, 1, {
      recorded: (input) => input === finding?.input,
      onInput: (draws) => {
        tape = draws.tape.slice();
      },
    });
    expect(again.finding?.input).toBe(finding?.input);
    const small = await minimise(TWO_LARGE, 1, tape);
    expect(small?.text).toBe('two large numbers');
    // The count, and the two numbers.
    expect(small?.tape.length).toBe(3);
  });

  it('detects errors that are never awaited', async () => {
    const late = toy(async () => {
      void Promise.reject(new Error('late'));
      await new Promise((resolve) => setImmediate(resolve));
      return 'done';
    });
    const listeners = process.listeners('unhandledRejection');
    process.removeAllListeners('unhandledRejection');
    try {
      expect((await runBatch(late, 1)).finding?.text).toBe('late');
    } finally {
      for (const listener of listeners) process.on('unhandledRejection', listener);
    }
  });

  it('fails an input that uses too much processor time twice, not one that waits for the processor', async () => {
    const busy = toy(() => {
      noteWork('createQP', 5);
      noteWork('modifyQP', 7);
      const before = process.cpuUsage();
      for (let sum = 0, used = 0; used < 1_050_000; ) {
        for (let count = 0; count < 1e6; count++) sum += count;
        const { user, system } = process.cpuUsage(before);
        used = user + system + (sum === 0 ? 1 : 0);
      }
      // The work that starts last is not the one that took so long.
      noteWork('destroyQP', 9);
      return 'done';
    });
    expect((await judgeBatch(busy, 1)).finding?.text).toMatch(
      /of the processor again; the longest work: modifyQP 7$/,
    );
    const wait = new Int32Array(new SharedArrayBuffer(4));
    const starved = toy(() => {
      Atomics.wait(wait, 0, 0, 1100);
      return 'done';
    });
    expect((await judgeBatch(starved, 1, { inputs: 1 })).finding).toBeUndefined();
  });

  it('takes a silent worker for a hanging one by its processor time, not by the clock', () => {
    const asleep = { cpuMs: 500, asleep: true };
    const waits = { cpuMs: 500, asleep: false };
    const hour = 3_600_000;
    const judged = (looks: readonly ProcessLook[], atMs = hour): boolean[] => {
      const watch = new SilenceWatch();
      watch.noteMessage(0, { cpuMs: 400, asleep: false });
      return looks.map((look) => watch.hangs(atMs, look));
    };
    const all = (hangs: boolean): boolean[] => [hangs, hangs, hangs, hangs];
    // Starved: it wants the processor, or got a little of it.
    expect(judged([waits, waits, waits, waits])).toEqual(all(false));
    const trickle = [510, 520, 530, 540].map((cpuMs) => ({ cpuMs, asleep: true }));
    expect(judged(trickle)).toEqual(all(false));
    expect(judged([asleep, asleep, waits, asleep])).toEqual(all(false));
    expect(judged([asleep, asleep, asleep, asleep])).toEqual([false, false, false, true]);
    expect(judged([asleep, asleep, asleep, asleep], 1000)).toEqual(all(false));
    expect(judged([{ cpuMs: 30_401, asleep: false }])).toEqual([true]);
    expect(new SilenceWatch().hangs(hour, undefined)).toBe(false);
  });

  it('sees whether a process wants the processor, also one that was stopped', async () => {
    const child = spawn('sleep', ['60']);
    try {
      await expect.poll(() => lookAt(child.pid)).toMatchObject({ asleep: true });
      child.kill('SIGSTOP');
      await expect.poll(() => lookAt(child.pid)).toMatchObject({ asleep: false });
    } finally {
      child.kill('SIGKILL');
    }
    await once(child, 'exit');
    expect(lookAt(child.pid)).toBeUndefined();
    expect(lookAt(process.pid)).toMatchObject({ asleep: false });
    expect(lookAt(process.pid)?.cpuMs).toBeGreaterThan(0);
  });

  it('detects growth but ignores a peak', () => {
    const look = (heapBytes: number, descriptors = 20) => {
      return { heapBytes, outsideBytes: 0, descriptors };
    };
    const watch = new GrowthWatch();
    const large = 200 * 2 ** 20;
    for (const bytes of [1, large, large, 1, large]) {
      expect(watch.judge(look(bytes))).toBeUndefined();
    }
    expect(watch.judge(look(large))).toBeUndefined();
    expect(watch.judge(look(large))).toContain('200.0 MiB of heap');
    const leaky = new GrowthWatch();
    for (const count of [20, 40, 60]) leaky.judge(look(1, count));
    expect(leaky.judge(look(1, 80))).toContain('80 descriptors');
  });

  it('distributes inputs by weight, with a thousandth at least for each target', () => {
    const tallies = shareInputs(TARGETS, 1e8);
    const inputs = tallies.map(({ target, batches }) => batches * target.batchInputs);
    const sum = inputs.reduce((left, right) => left + right, 0);
    expect(sum).toBeGreaterThanOrEqual(1e8);
    expect(sum).toBeLessThan(1.01e8);
    expect(Math.min(...inputs)).toBeGreaterThanOrEqual(100_000);
    expect(shareInputs(TARGETS, 1).every(({ batches }) => batches === 1)).toBe(true);
  });

  it('selects targets by name and by group, and lists the valid names for an unknown one', () => {
    expect(targetsNamed(['ipc-value', 'wire']).map(({ name }) => name)).toContain('wire-stream');
    expect(() => targetsNamed(['wir'])).toThrow(/choose from wire-header, /);
    expect(new Set(TARGETS.map(({ name }) => name)).size).toBe(TARGETS.length);
  });

  it('starts as it is compiled: `npm run fuzz -- --list`', () => {
    const main = join(repositoryRoot(), 'dist/test/fuzz/main.js');
    const listed = execFileSync(process.execPath, [main, '--list'], { encoding: 'utf8' });
    expect(listed.split('\n').slice(0, -1)).toHaveLength(TARGETS.length);
  });

  it.each(['fuzz', 'sim', 'bench'])('prints its usage: `npm run %s -- --help`', (name) => {
    const main = join(repositoryRoot(), `dist/test/${name}/main.js`);
    const said = execFileSync(process.execPath, [main, '--help'], { encoding: 'utf8' });
    expect(said).toMatch(new RegExp(`^usage: npm run ${name} -- \\[--.*\\]\n`));
  });

  it('runs every target and its canary in these tests', () => {
    const folder = join(repositoryRoot(), 'test/fuzz');
    const texts = readdirSync(folder)
      .filter((file) => file.endsWith('.test.ts'))
      .map((file) => readFileSync(join(folder, file), 'utf8'))
      .join('\n');
    const missing = TARGETS.filter(
      ({ name }) => !texts.includes(`smoke('${name}')`) || texts.split(`'${name}'`).length < 3,
    );
    expect(missing.map(({ name }) => name)).toEqual([]);
  });
});
