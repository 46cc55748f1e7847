/**
 * Records the kernel's rxe again: node dist/test/interop/kernel-peer/record-rxe.js [NAME...].
 * Boots a guest, runs `test/vectors/roce/record` there, and copies the results to `recordings` beside it.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGuest } from '#test/interop/kernel-peer/kernel-peer';
import { repositoryRoot } from '#test/support/prerequisites';

const place = join(repositoryRoot(), 'test/vectors/roce');
const share = mkdtempSync(join(tmpdir(), 'iwarpd-record-'));
try {
  const traffic = join(share, 'rxe-traffic');
  execFileSync('gcc', ['-O2', '-Wall', '-o', traffic, join(place, 'rxe-traffic.c'), '-libverbs']);
  await using guest = await startGuest({ rxe: true, share });
  const words = [join(place, 'record'), traffic, share, ...process.argv.slice(2)];
  const { status, output } = await guest.runToEnd(words.join(' '));
  process.stderr.write(output);
  if (status !== 0) process.exitCode = 1;
  for (const name of readdirSync(share).filter((file) => file.endsWith('.pcap'))) {
    copyFileSync(join(share, name), join(place, 'recordings', name));
  }
} finally {
  rmSync(share, { recursive: true, force: true });
}
