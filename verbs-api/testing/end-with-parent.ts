/**
 * Loaded into a private daemon ahead of its command: stops the daemon when the process that started
 * it ends, killed or not, and removes the directory that would otherwise stay. Standard input is a
 * pipe, whose other end the kernel closes with that process.
 */
import { rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { DIRECTORY_VARIABLE } from './private-directory.ts';

/** Connections may need longer than this to end; nothing is left to wait for them. */
const STOP_TIMEOUT_MS = 2000;

const directory = process.env[DIRECTORY_VARIABLE];

function endDaemon(): void {
  process.once('exit', () => {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  });
  // Before the daemon has a handler, the signal would end the process and leave the directory.
  if (process.listenerCount('SIGTERM') === 0) process.exit(1);
  setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref();
  process.kill(process.pid, 'SIGTERM');
}

// Node treats a pipe as a socket; it must not keep a daemon alive that ends on its own.
const parent: Socket = process.stdin;
parent.once('close', endDaemon);
parent.on('error', () => undefined);
parent.resume();
parent.unref();
