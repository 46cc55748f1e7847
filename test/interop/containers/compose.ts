/** `docker/compose.yaml`, brought up by docker-compose itself in a world. */
import { existsSync } from 'node:fs';
import { until } from '#test/support/patience';
import type { Podman } from './podman.ts';
import type { CommandOptions, Outcome, World } from './world.ts';

/** Serves Docker's API by podman, and runs the health checks that systemd would run. */
export async function serveDocker(podman: Podman): Promise<void> {
  const { world } = podman;
  // In the world's /run, which is invisible outside.
  const socket = '/run/docker.sock';
  world.setEnvironment({ DOCKER_HOST: `unix://${socket}`, COMPOSE_PROJECT_NAME: 'nodes' });
  world.start(['podman', 'system', 'service', '--time', '0', `unix://${socket}`]);
  const serves = async (): Promise<boolean> => {
    return (await world.run(['test', '-S', socket])).status === 0;
  };
  await until("podman's socket", serves);
  const starting = 'podman ps --quiet --filter health=starting';
  const check = `for each in $(${starting}); do podman healthcheck run "$each"; done`;
  world.start(['bash', '-c', `while sleep 0.5; do ${check}; done`]);
}

/** Calls docker-compose with `file`. */
export function compose(
  world: World,
  file: string,
  words: readonly string[],
  options?: CommandOptions,
): Promise<Outcome> {
  if (!existsSync(file)) throw new Error(`there is no ${file}`);
  return world.run(['docker-compose', '--no-ansi', '--file', file, ...words], options);
}
