import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isExiting } from '#daemon/kernel/kernel-client';
import { until } from '#test/support/patience';

/** A shell that becomes another program, which never reaps the shell's child. */
const parent = spawn('sh', ['-c', 'cat <&3 & echo $!; exec cat'], {
  stdio: ['pipe', 'pipe', 'inherit', 'pipe'],
});
let child: number;

async function line(): Promise<string> {
  const [chunk] = (await once(parent.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  return chunk.toString().trim();
}

beforeAll(async () => {
  child = Number(await line());
  // The answer comes from the program that replaced the shell.
  parent.stdin?.write('there\n');
  expect(await line()).toBe('there');
});

afterAll(() => parent.stdin?.end());

it('is detected for a process that has released its memory', async () => {
  expect(isExiting(child)).toBe(false);
  (parent.stdio[3] as Writable).end();
  await until('the end of the child', () => isExiting(child));
  expect(isExiting(parent.pid ?? 0)).toBe(false);
});

it('is not assumed for an invisible process', () => {
  expect(isExiting(0)).toBe(false);
  expect(isExiting(2 ** 30)).toBe(false);
});
