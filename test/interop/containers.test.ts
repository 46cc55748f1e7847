/** The image of `docker/`, and the examples beside it, run as they are. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { patience } from '../support/patience.ts';
import { composeSuite } from './containers/compose-suite.ts';
import { dockerfileSuite } from './containers/dockerfile-suite.ts';
import { buildImage, makeBaseImage } from './containers/image.ts';
import { imageSuite } from './containers/image-suite.ts';
import { kubernetesSuite } from './containers/kubernetes-suite.ts';
import { builderObstacle, rootObstacle } from './containers/obstacle.ts';
import { Podman } from './containers/podman.ts';
import { eventually } from './containers/status.ts';
import { startRunner, workflowSuite } from './containers/workflow-suite.ts';
import { WORLD_SCRIPT, World } from './containers/world.ts';

const BUILD_TIMEOUT_MS = 600_000;

const obstacle = await builderObstacle();
const needless = obstacle === undefined ? 'podman builds the image here' : await rootObstacle();

/** Declares tests that may be skipped, with the reason in their title. */
function describeUnless(reason: string | undefined, title: string, body: () => void): void {
  const name = reason === undefined ? title : `${title} (${reason})`;
  describe.skipIf(reason !== undefined)(name, body);
}

describeUnless(needless, 'Dockerfile without a builder', dockerfileSuite);

describeUnless(obstacle, 'containers', () => {
  let world: World | undefined;
  let podman: Podman | undefined;
  function given(): Podman {
    if (podman === undefined) throw new Error('there is no image');
    return podman;
  }
  beforeAll(async () => {
    world = await World.open();
    podman = await Podman.open(world);
    await makeBaseImage(podman);
    // One waits for downloads while the other works.
    await Promise.all([buildImage(podman), startRunner(podman)]);
  }, patience(BUILD_TIMEOUT_MS));
  afterAll(() => world?.close());

  imageSuite(given);
  composeSuite(given);
  kubernetesSuite(given);
  workflowSuite(given);

  describe('leaves nothing behind', () => {
    it('when all is done, with a container still there', async () => {
      const other = await World.open();
      const init = other.init;
      const loop = [
        'sh',
        '-c',
        'mount -t tmpfs tmpfs /mnt && ip link add v0 type dummy && sleep 99',
      ];
      other.start(loop);
      await eventually('the mount', async () =>
        (await other.run(['mountpoint', '-q', '/mnt'])).status === 0 ? true : undefined,
      );
      await other.close();
      expect(traces(other.folder, init)).toEqual([]);
    });

    it('when the process that opened it is killed', async () => {
      const folder = given().world.file('victim');
      const script = `
        const { spawn } = require('node:child_process');
        const child = spawn('bash', [${JSON.stringify(WORLD_SCRIPT)}, ${JSON.stringify(folder)}],
          { stdio: ['pipe', 'inherit', 'inherit'], detached: true });
        setInterval(() => child, 1000);`;
      await given().world.run(['mkdir', folder]);
      const holder = spawn(process.execPath, ['-e', script], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const [line] = await once(holder.stdout, 'data');
      const init = Number(/^ready (\d+)/.exec(String(line))?.[1]);
      expect(existsSync(`/proc/${init}`)).toBe(true);
      holder.kill('SIGKILL');
      await eventually('the end of the world', async () =>
        traces(folder, init).length === 0 ? true : undefined,
      );
    });
  });
});

/** The remains of a world: its folder, init, mounts and cgroups. */
function traces(folder: string, init: number): string[] {
  const name = `iwarpd-containers-${basename(folder)}`;
  const hierarchies = readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '))
    .filter(([, , type]) => type === 'cgroup' || type === 'cgroup2')
    .map(([, place = '']) => place);
  return [
    ...[folder, `/proc/${init}`].filter((path) => existsSync(path)),
    ...hierarchies.flatMap((place) => readdirSync(place).filter((each) => each === name)),
    ...readFileSync('/proc/mounts', 'utf8')
      .split('\n')
      .filter((line) => line.includes(folder)),
  ];
}
