import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const module = fileURLToPath(
  new URL('../../../dist/native-bridge/libc/copy-guard.js', import.meta.url),
);

/** Runs a process that guards its copies, and exits after this time. */
function endAfter(milliseconds: number): Promise<{ status: number | null; said: string }> {
  const program = `
    const { copyGuard } = await import(${JSON.stringify(module)});
    copyGuard.start();
    setTimeout(() => process.exit(0), ${milliseconds});`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program]);
  let said = '';
  child.stderr.on('data', (data: Buffer) => {
    said += data.toString();
  });
  return new Promise((resolve) => child.on('close', (status) => resolve({ status, said })));
}

describe('copy guard', () => {
  it('allows a process to exit at any time while its second thread starts', async () => {
    // The thread loads its library between 30 and 60 ms after its start, on an idle machine.
    for (let milliseconds = 20; milliseconds <= 70; milliseconds += 1) {
      expect(await endAfter(milliseconds)).toEqual({ status: 0, said: '' });
    }
  });
});
