import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { repositoryRoot } from '#test/support/prerequisites';
import { missingFor, NATIVE } from '#test/support/shim-rig';
import { temporaryFolder } from '#test/support/temporary-folder';

const reason = missingFor(NATIVE);

describe.runIf(reason === '')(`rings with indices, once the daemon is gone${reason}`, () => {
  it('complete every outstanding request once, if there is room', () => {
    const root = repositoryRoot();
    const program = join(temporaryFolder(), 'probe');
    const probe = join(root, 'test/unit/preload/probes/index-ring-probe.c');
    const tested = join(root, 'native-bridge/preload/index-ring.c');
    const flags = ['-std=c11', '-Wall', '-Wextra', '-fno-strict-aliasing'];
    const words = [...flags, probe, tested, '-o', program];
    const built = spawnSync(NATIVE.compiler, words, { encoding: 'utf8' });
    expect(built.status, built.stderr).toBe(0);
    const { status, stderr } = spawnSync(program, { encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(status).toBe(0);
  });
});
