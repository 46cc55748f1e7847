/** Mooncake's transfer engine on two rails: its validator writes, reads and compares, while a rail goes down. */
import { afterEach, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand } from '#test/support/cli-process';
import { freePort } from '#test/support/free-port';
import { patience, until } from '#test/support/patience';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { describeWithTree, treePath } from './tree.ts';

const VALIDATOR = 'mooncake-transfer-engine/build/example/transfer_engine_validator';
/** On a busy machine longer, so that the rail goes down in time. */
const seconds = (): number => Math.ceil(patience(8000) / 1000);
const DOWN_MS = 2000;
const BUFFER_BYTES = 64 << 20;

const folder = new CommandFolder();
const socket = (): string => folder.file('d/s');
let target: RunningCommand | undefined;

afterEach(async () => {
  // `run` passes it on, and the target closes its output.
  target?.signal('SIGTERM');
  await target?.end();
  target = undefined;
  await folder.clean();
});

/** Words that run the validator, which finds the rails on its own. */
function words(mode: string, name: string, ...more: readonly string[]): string[] {
  const place = ['--metadata_server=P2PHANDSHAKE', `--local_server_name=127.0.0.1:${name}`];
  const sizes = [`--buffer_size=${BUFFER_BYTES}`, '--block_size=65536', '--batch_size=8'];
  const work = ['--auto_discovery', '--threads=2', `--duration=${seconds()}`];
  const validator = [treePath('mooncake', VALIDATOR), `--mode=${mode}`, ...place, ...sizes];
  return ['run', '--socket', socket(), '--', ...validator, ...work, ...more];
}

describeWithTree('mooncake', [VALIDATOR], "Mooncake's transfer engine", () => {
  it('finds both rails, and uses one while the other is down', async () => {
    await folder.daemon(socket(), ['--rails', '2', '--network', 'isolated']);
    const control = new DaemonControl({ socketPath: socket() });
    const sent = async (): Promise<number[]> => {
      const devices = await control.devices();
      return devices.map(({ hwCounters }) => Number(hwCounters?.['sent_pkts']));
    };
    target = folder.start(words('target', String(await freePort())));
    await target.until(/listening on/, 'stderr');
    const [, place = ''] = /listening on (\S+)/.exec(target.stderr) ?? [];
    // Of its buffer, by each rail.
    await until('the target to register its memory', async () =>
      (await control.clients()).some(({ usage }) => usage.pinnedBytes >= 2 * BUFFER_BYTES),
    );
    const segment = `--segment_id=${place}`;
    const initiator = folder.start(words('initiator', String(await freePort()), segment));
    await until(
      () => `both rails to be used: ${initiator.stderr}`,
      async () => Math.min(...(await sent())) > 0,
    );
    await control.addFault({ kind: 'port-down', device: 'roce1', ms: DOWN_MS });
    const [near = 0, far = 0] = await sent();
    await until('the other rail', async () => ((await sent())[0] ?? 0) > near);
    await until('the rail to be used again', async () => ((await sent())[1] ?? 0) > far);
    const { status, stderr } = await initiator.end();
    expect(status, stderr).toBe(0);
    expect(stderr).toContain('Test completed');
    expect(stderr).not.toContain('integrity problem');
  });
});
