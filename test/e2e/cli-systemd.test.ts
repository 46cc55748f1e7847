import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { systemdUnit } from '#daemon/cli/shell/shell-options';
import { runCommand } from '../support/cli-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let folder: string;

beforeEach(() => {
  folder = temporaryFolder();
});

const analyze = spawnSync('systemd-analyze', ['--version']).status === 0;

describe('iwarpd manual --systemd-unit', () => {
  it('starts the command of this installation, which reports when it is ready', async () => {
    const { status, stdout, stderr } = await runCommand(['manual', '--systemd-unit']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const [, node = '', script = ''] = /^ExecStart="(.+)" "(.+)" start$/m.exec(stdout) ?? [];
    expect(node).toBe(process.execPath);
    expect(existsSync(script)).toBe(true);
    expect(stdout).toMatch(/^Type=notify$/m);
    expect(stdout.match(/^\[.+\]$/gm)).toEqual(['[Unit]', '[Service]', '[Install]']);
    for (const line of stdout.trim().split('\n')) expect(line).toMatch(/^(\[\w+\]|\w+=.+|)$/);
  });

  it('quotes paths with characters that systemd would expand', () => {
    expect(systemdUnit('/a b/node', '/c%d/$e/"f"/main.js')).toContain(
      'ExecStart="/a b/node" "/c%%d/$$e/\\"f\\"/main.js" start\n',
    );
  });

  it.skipIf(!analyze)('passes systemd-analyze verify', async () => {
    const unit = join(folder, 'iwarpd.service');
    writeFileSync(unit, (await runCommand(['manual', '--systemd-unit'])).stdout);
    const words = ['--user', '--man=no', 'verify', unit];
    const { status, stderr } = spawnSync('systemd-analyze', words, {
      encoding: 'utf8',
      env: { ...process.env, XDG_RUNTIME_DIR: folder },
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });
});
