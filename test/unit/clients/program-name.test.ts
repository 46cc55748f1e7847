import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { basename } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { programName } from '#daemon/clients/client-identity';

const children: ChildProcess[] = [];

afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

/** A program of Node that has called itself so; its pid. */
async function named(title: string): Promise<number> {
  const script = `process.title = '${title}'; console.log('ready'); setInterval(() => {}, 1e6)`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  await once(child.stdout, 'data');
  return child.pid ?? 0;
}

describe("a program's name", () => {
  it('is the name that it gives itself', async () => {
    expect(programName(await named('my-server'))).toBe('my-server');
  });

  it('is that of its executable if Node 24 has named its first thread', async () => {
    expect(programName(await named('MainThread'))).toBe(basename(process.execPath));
  });

  it('is undefined for a missing process', () => {
    expect(programName(2 ** 22 + 1)).toBe('');
  });
});
