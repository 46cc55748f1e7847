/**
 * Loaded into a private daemon ahead of its command: ends it when the process that started it is
 * gone, however that went, and removes the directory that nobody else would. The pipe on standard
 * input tells: the kernel closes its other end with that process.
 */
import { rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { DIRECTORY_VARIABLE } from './private-directory.ts';

/** Connections may need longer than this to end; nobody is left who would care. */
const STOP_TIMEOUT_MS = 2000;

const directory = process.env[DIRECTORY_VARIABLE];

function endDaemon(): void {
  process.once('exit', () => {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  });
  // Before the daemon has a handler the signal would end the process, and leave the directory.
  if (process.listenerCount('SIGTERM') === 0) process.exit(1);
  setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref();
  process.kill(process.pid, 'SIGTERM');
}

// A pipe is a socket to Node; it must not keep a daemon alive that ends by itself.
const parent: Socket = process.stdin;
parent.once('close', endDaemon);
parent.on('error', () => undefined);
parent.resume();
parent.unref();
