/** valkey's server and its own test client, over RDMA. They need Writes with Immediate Data, so not over iWARP. */
import { afterEach, expect, it } from 'vitest';
import {
  CommandFolder,
  type Finished,
  type RunningCommand,
  runCommand,
} from '#test/support/cli-process';
import { freePort } from '#test/support/free-port';
import { describeWithTree, treePath } from './tree.ts';

const SERVER = 'src/valkey-server';
const MODULE = 'src/valkey-rdma.so';
const CLIENT = 'tests/rdma/rdma-test';

const folder = new CommandFolder();
let server: RunningCommand | undefined;
const socket = (): string => folder.file('d/s');

afterEach(async () => {
  // `run` passes it on, and the server closes its output.
  server?.signal('SIGTERM');
  await server?.end();
  server = undefined;
  await folder.clean();
});

/** Starts a daemon, and a server on it. Returns how to run the client. */
async function startServer(): Promise<() => Promise<Finished>> {
  await folder.daemon(socket(), ['--device', 'roce0=roce:127.0.0.1']);
  const run = ['run', '--socket', socket(), '--'];
  const port = await freePort();
  server = folder.start([
    ...[...run, treePath('valkey', SERVER), '--port', '0', '--save', '', '--dir', folder.path],
    ...['--loadmodule', treePath('valkey', MODULE), `port=${port}`, 'bind=127.0.0.1'],
  ]);
  await server.until(/Ready to accept connections/);
  const client = [treePath('valkey', CLIENT), '-t', '2', '-h', '127.0.0.1', '-p', String(port)];
  return () => runCommand([...run, ...client, '-m', '64', '-M', '256']);
}

async function fault(...words: readonly string[]): Promise<void> {
  const done = await runCommand(['fault', 'add', ...words, '--socket', socket()]);
  expect(done.status, done.stderr).toBe(0);
}

describeWithTree('valkey', [SERVER, MODULE, CLIENT], 'valkey', () => {
  it('passes its own test', async () => {
    const client = await startServer();
    const done = await client();
    expect(done.status, `${done.stdout}${done.stderr}`).toBe(0);
  });

  // Not if they are lost: the client gives up after a second, before a connection of rdma_cm repeats a packet.
  it('passes its own test though packets arrive twice', async () => {
    const client = await startServer();
    await fault('duplicate', '--probability', '0.1');
    const done = await client();
    expect(done.status, `${done.stdout}${done.stderr}`).toBe(0);
  });

  it('serves the next client after a queue pair failed', async () => {
    const client = await startServer();
    await fault('qp-fatal', '--opcode', 'write', '--nth', '100');
    const failed = await client();
    expect(failed.signal).toBeUndefined();
    expect(failed.status, `${failed.stdout}${failed.stderr}`).not.toBe(0);
    const done = await client();
    expect(done.status, `${done.stdout}${done.stderr}`).toBe(0);
  });
});
