/** Runs all steps of the Dockerfile in plain root file systems where its image cannot be built. */
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { patience } from '#test/support/patience';
import { repositoryRoot } from '#test/support/prerequisites';
import { CERTIFICATES, makeBaseRoot, registryAccess } from './base-root.ts';
import { copyContext } from './context.ts';
import { readStages, runStage, type Stage } from './dockerfile.ts';
import { type Outcome, World } from './world.ts';

const STAGE_TIMEOUT_MS = 400_000;
const STEP_TIMEOUT_MS = 300_000;
const stages = readStages(join(repositoryRoot(), 'docker/Dockerfile'));

/** Declares the tests: one for each stage, and one that uses the result of the last stage. */
export function dockerfileSuite(): void {
  let world: World | undefined;
  const roots = new Map<string, string>();
  function given(): World {
    if (world === undefined) throw new Error('there is no world');
    return world;
  }
  beforeAll(async () => {
    world = await World.open();
  });
  afterAll(() => world?.close());

  /** A root file system for a stage, with /dev, /proc and access to npm's registry. */
  async function makeRoot(name: string): Promise<string> {
    const root = given().file(name);
    await makeBaseRoot(given(), root);
    await given().output(['mount', '-t', 'proc', 'proc', join(root, 'proc')]);
    await given().output(['mount', '--bind', '/dev', join(root, 'dev')]);
    const { certificates, npmrc } = await registryAccess(given());
    await cp(certificates, join(root, CERTIFICATES));
    await cp(npmrc, join(root, 'root/.npmrc'));
    await given().output(['cp', '-L', '/etc/resolv.conf', join(root, 'etc/resolv.conf')]);
    return root;
  }

  async function take(stage: Stage, name: string): Promise<number> {
    const root = await makeRoot(name);
    roots.set(name, root);
    return await runStage(stage, {
      root,
      earlier: roots,
      copyContext: (target) => copyContext(given(), target),
      async shell(command, directory) {
        const inside = ['chroot', root, 'sh', '-c', `cd ${directory} && ${command}`];
        const clean = ['env', '--ignore-environment', 'HOME=/root', `PATH=${SEARCHED}`];
        const options = { network: 'machine', timeoutMs: STEP_TIMEOUT_MS } as const;
        await given().output([...clean, ...inside], options);
      },
    });
  }

  for (const [index, stage] of stages.entries()) {
    const name = stage.name ?? `stage-${index}`;
    it(`runs every step of stage ${index + 1}`, {
      timeout: patience(STAGE_TIMEOUT_MS),
    }, async () => {
      const runs = stage.instructions.filter((each) => each.name === 'RUN').length;
      expect(runs).toBeGreaterThan(0);
      expect(await take(stage, name)).toBe(runs);
    });
  }

  it('builds a command that finds all it needs, and a device for ibv_devices', async () => {
    const root = roots.get(`stage-${stages.length - 1}`) ?? '';
    const user = ['chroot', '--userspec=10001:10001', root];
    const clean = ['env', '--ignore-environment', `PATH=${SEARCHED}`];
    function call(...words: readonly string[]): Promise<Outcome> {
      return given().run([...clean, ...user, ...words]);
    }
    const doctor = await call('iwarpd', 'doctor');
    expect(doctor).toMatchObject({ status: 0 });
    expect(doctor.stdout).toMatch(/^ok +preload /m);
    const listed = await call('iwarpd', 'run', '--fresh', '--', 'ibv_devices');
    expect(listed.stdout).toMatch(/iwarp0\s+[0-9a-f]{16}/);
  });
}

const SEARCHED = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
