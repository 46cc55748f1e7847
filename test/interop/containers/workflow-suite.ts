/** Runs the shell steps of `docker/github-actions.yaml`, in order. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { repositoryRoot } from '#test/support/prerequisites';
import { copyContext } from './context.ts';
import { BASE_IMAGE, registryVolumes } from './image.ts';
import type { Podman } from './podman.ts';
import { readWorkflow } from './workflow.ts';
import type { Outcome } from './world.ts';

const RUNNER = 'runner';
const STEP_TIMEOUT_MS = 240_000;
const WORKSPACE = '/home/runner/work/project/project';
/** The repository for the step that fetches iwarpd. */
const REPOSITORY = 'file:///srv/iwarpd';

const { uses, runs } = readWorkflow(join(repositoryRoot(), 'docker/github-actions.yaml'), {
  IWARPD_REPOSITORY: REPOSITORY,
  IWARPD_REVISION: 'HEAD',
});

/** Programs of a GitHub runner that a minimal Debian lacks. */
const BROUGHT = 'git make gcc g++ libc6-dev python3 sudo';

/** A user's project: a check that passes on an RNIC and fails without one. */
const MAKEFILE = `check:
\tibv_devinfo -d iwarp0 | grep -q PORT_ACTIVE
\trping -s -a 127.0.0.1 -C 5 & until rping -c -a 127.0.0.1 -C 5 -v; do sleep 0.2; done; wait
\t@echo all checks passed
`;

const PREPARE = `set -e
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${BROUGHT}
useradd --uid 1001 --create-home runner
echo 'runner ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/runner
mkdir -p ${WORKSPACE}
cp /srv/Makefile ${WORKSPACE}/Makefile
chown -R runner /home/runner
install -m 0644 /root/.npmrc /home/runner/.npmrc
chown -R runner /srv/iwarpd
sudo -u runner sh -ec 'cd /srv/iwarpd && git init -q && git add -A &&
  git -c user.name=x -c user.email=x@example.org commit -q -m checkout'
`;

/** Starts a minimal Debian with a runner's programs, the checkout to clone, and a project. */
export async function startRunner(podman: Podman): Promise<void> {
  const { world } = podman;
  const checkout = world.file('checkout');
  await copyContext(world, checkout);
  await writeFile(world.file('Makefile'), MAKEFILE);
  const volumes = [
    ...(await registryVolumes(podman)),
    ...['--volume', `${checkout}:/srv/iwarpd`],
    ...['--volume', `${world.file('Makefile')}:/srv/Makefile:ro`],
  ];
  const machine = { network: 'machine', timeoutMs: STEP_TIMEOUT_MS } as const;
  const words = ['--network', 'host', ...volumes, BASE_IMAGE, 'sleep', 'infinity'];
  await podman.command(['run', '--detach', '--name', RUNNER, '--init=false', ...words], machine);
  await podman.command(['exec', RUNNER, 'bash', '-c', PREPARE], machine);
}

/** Declares the tests; `given` returns the podman where the runner has been started. */
export function workflowSuite(given: () => Podman): void {
  describe('github-actions.yaml', () => {
    /** Runs a script as the runner does: by bash, in the workspace, until a command fails. */
    function take(script: string, env: Readonly<Record<string, string>> = {}): Promise<Outcome> {
      const flags = Object.entries(env).map(([name, value]) => `--env=${name}=${value}`);
      const user = ['--user', 'runner', '--workdir', WORKSPACE, '--env=HOME=/home/runner'];
      const words = ['podman', 'exec', ...user, ...flags, RUNNER, 'bash', '-e', '-c', script];
      return given().world.run(words, { timeoutMs: STEP_TIMEOUT_MS });
    }

    afterAll(() => given().remove(RUNNER));

    it(`leaves to GitHub what only GitHub can do: ${uses.join(', ')}`, () => {
      expect(uses.map((name) => name.replace(/@.*/, ''))).toEqual([
        'actions/checkout',
        'actions/setup-node',
        'actions/cache',
        'actions/upload-artifact',
      ]);
    });

    it('has a project whose check fails without an RNIC', async () => {
      const { status } = await take('make check');
      expect(status).not.toBe(0);
    });

    for (const { name, run, env } of runs) {
      it(`step: ${name}`, async () => {
        const { status, stdout, stderr } = await take(run, env);
        expect({ status, said: status === 0 ? '' : stdout + stderr }).toEqual({
          status: 0,
          said: '',
        });
        if (name.startsWith('make check')) {
          expect(stdout).toContain('ping data: rdma-ping-0');
          expect(stdout).toMatch(/all checks passed\n$/);
        }
      });
    }
  });
}
