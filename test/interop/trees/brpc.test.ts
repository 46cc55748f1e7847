/** brpc's measuring client and server: every request is echoed over RDMA. */
import { afterEach, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand, runCommand } from '#test/support/cli-process';
import { freePort } from '#test/support/free-port';
import { describeWithTree, treePath } from './tree.ts';

const SERVER = 'build-perf/server';
const CLIENT = 'build-perf/client';
const ADDRESS = '127.0.0.1';

const folder = new CommandFolder();
let server: RunningCommand | undefined;

afterEach(async () => {
  // `run` passes it on, and the server closes its output.
  server?.signal('SIGTERM');
  await server?.end();
  server = undefined;
  await folder.clean();
});

describeWithTree('brpc', [SERVER, CLIENT], "brpc's echoes", () => {
  it.each([
    ['arrive', undefined],
    ['arrive though packets are lost', ['drop', '--probability', '0.002']],
  ])('%s', async (_, fault) => {
    const socket = folder.file('d/s');
    await folder.daemon(socket, ['--device', `roce0=roce:${ADDRESS}`]);
    const run = ['run', '--socket', socket, '--'];
    const port = await freePort();
    server = folder.start([...run, treePath('brpc', SERVER), `--port=${port}`]);
    await server.until(/is serving on port/, 'stderr');
    if (fault !== undefined) {
      const added = await runCommand(['fault', 'add', ...fault, '--socket', socket]);
      expect(added.status, added.stderr).toBe(0);
    }
    const work = [
      '--test_seconds=3',
      '--thread_num=2',
      '--queue_depth=4',
      '--echo_attachment=true',
    ];
    const size = ['--attachment_size=65536', '--rpc_timeout_ms=60000'];
    const ends = [`--servers=${ADDRESS}:${port}`, `--dummy_port=${await freePort()}`];
    const client = await runCommand([...run, treePath('brpc', CLIENT), ...ends, ...work, ...size]);
    const output = `${client.stdout}${client.stderr}`;
    expect(client.status, output).toBe(0);
    expect(output).not.toContain('RPC call failed');
    const [, throughput] = /RDMA: yes[\s\S]*Throughput: ([\d.]+)MB/.exec(output) ?? [];
    expect(Number(throughput), output).toBeGreaterThan(0);
  });
});
