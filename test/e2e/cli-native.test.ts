import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { NativeDaemonRig, programEnvironment } from '../support/native-daemon.ts';

describe('native devices on the command line', () => {
  const rig = new NativeDaemonRig();
  beforeAll(async () => {
    await rig.start(
      [{ name: 'siw0', addresses: ['127.0.0.1'] }],
      ['--device', 'emu0=127.0.0.3', '--device', 'fast=native:siw0'],
    );
  });
  afterAll(() => rig.stop());

  it('are listed with their backend, by the name they were given', async () => {
    expect(rig.upper.stdout).toContain('emu0 (127.0.0.3), fast (native, 127.0.0.1)');
    const { stdout } = await runCommand(['devices', '--socket', rig.socketPath]);
    expect(stdout).toMatch(/^device +backend +node GUID +addresses\n/);
    expect(stdout).toMatch(/^emu0 +emulated +[0-9a-f]{16} +127\.0\.0\.3$/m);
    expect(stdout).toMatch(/^fast +native +[0-9a-f]{16} +127\.0\.0\.1$/m);
    const json = await runCommand(['devices', '--json', '--socket', rig.socketPath]);
    expect(JSON.parse(json.stdout)).toMatchObject({
      devices: [
        { name: 'emu0', backend: 'emulated' },
        { name: 'fast', backend: 'native' },
      ],
    });
    const status = await runCommand(['status', '--socket', rig.socketPath]);
    expect(status.stdout).toContain('device fast (native): 127.0.0.1');
  });

  it('carry rping from the emulated device', async () => {
    const folder = new CommandFolder();
    const socket = ['--socket', rig.socketPath];
    const place = ['-a', '127.0.0.1', '-p', String(await freePort())];
    const server = folder.start(['rping', '-s', ...place, '-d', ...socket]);
    await server.until(/listening/, 'stderr');
    const words = ['rping', '-c', ...place, '-I', '127.0.0.3'];
    const client = await runCommand([...words, '-C', '5', '-V', ...socket]);
    expect(client).toMatchObject({ status: 0 });
    expect(await server.end()).toMatchObject({ status: 0 });
    await folder.clean();
  });

  it.each([
    [['--device', 'a=native:nowhere0'], /device a: no native device nowhere0 \(found: .*siw0.*\)/],
    [['--device', 'a=native:siw0', '--no-native'], /names a native device, but native is false/],
    [['--device', 'a=native:siw0', '--device', 'a=127.0.0.1'], /two devices are called a/],
  ])('fail in one line: %j', async (words, message) => {
    const socket = `${rig.directory}/other.sock`;
    const environment = programEnvironment(rig.lowerPath);
    const finished = await runCommand(['start', '--socket', socket, ...words], environment);
    expect(finished.status).toBeGreaterThan(0);
    expect(finished.stderr).toMatch(message);
    expect(finished.stderr.trim().split('\n')).toHaveLength(1);
  });

  it('are not searched for with --no-native', async () => {
    const folder = new CommandFolder();
    const words = ['start', '--socket', folder.file('s'), '--no-native'];
    const daemon = folder.start(words, programEnvironment(rig.lowerPath));
    await daemon.until(/ready/);
    expect(daemon.stdout).not.toContain('native');
    await folder.clean();
  });

  it('are refused to a daemon that would request them from itself', async () => {
    const words = ['start', '--socket', rig.socketPath];
    const finished = await runCommand(words, programEnvironment(rig.socketPath));
    expect(finished).toMatchObject({ status: 1, stdout: '' });
    expect(finished.stderr).toMatch(/environment of programs that use the daemon at/);
  });

  it('are not available to run', async () => {
    const finished = await runCommand(['run', '--device', 'a=native:siw0', '--', 'true']);
    expect(finished.status).not.toBe(0);
    expect(finished.stderr).toContain('`iwarpd run` offers emulated devices only');
  });
});
