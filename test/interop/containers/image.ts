/** Builds the image of `docker/Dockerfile` in a world. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { repositoryRoot } from '#test/support/prerequisites';
import { CERTIFICATES, makeBaseRoot, registryAccess } from './base-root.ts';
import type { Podman } from './podman.ts';

/** The image that the examples name. */
export const IMAGE = 'localhost/iwarpd';
/** The plain root file system, as an image. */
export const BASE_IMAGE = 'localhost/iwarpd-base';

const IMPORT_TIMEOUT_MS = 120_000;
const BUILD_TIMEOUT_MS = 400_000;

/** Pulls the base image that `$IWARPD_NODE_IMAGE` names, or else builds one. */
export async function makeBaseImage(podman: Podman): Promise<void> {
  const { world } = podman;
  const pulled = process.env['IWARPD_NODE_IMAGE'];
  if (pulled !== undefined) {
    await podman.command(['pull', pulled], { network: 'machine', timeoutMs: BUILD_TIMEOUT_MS });
    await podman.command(['tag', pulled, BASE_IMAGE]);
    return;
  }
  const root = world.file('base');
  await makeBaseRoot(world, root);
  const archive = world.file('base.tar');
  const limit = { timeoutMs: IMPORT_TIMEOUT_MS };
  await world.output(['tar', '-C', root, '--numeric-owner', '-cf', archive, '.'], limit);
  await podman.command(['import', archive, BASE_IMAGE], limit);
  await Promise.all([rm(archive), rm(root, { recursive: true })]);
}

/** Options that give a build or a container this machine's access to npm's registry. */
export async function registryVolumes(podman: Podman): Promise<string[]> {
  const { certificates, npmrc } = await registryAccess(podman.world);
  return [`${certificates}:${CERTIFICATES}:ro`, `${npmrc}:/root/.npmrc:ro`].flatMap((volume) => [
    '--volume',
    volume,
  ]);
}

/** Builds the image from this checkout, on the base image. */
export async function buildImage(podman: Podman): Promise<void> {
  const root = repositoryRoot();
  const words = [
    ...['build', '--isolation', 'chroot', '--network', 'host', '--layers=false'],
    // Docker's image format supports HEALTHCHECK; the default one does not.
    ...['--format', 'docker', '--build-arg', `NODE_IMAGE=${BASE_IMAGE}`],
    ...(await registryVolumes(podman)),
    ...['--tag', IMAGE, '--file', join(root, 'docker/Dockerfile'), root],
  ];
  await podman.command(words, { network: 'machine', timeoutMs: BUILD_TIMEOUT_MS });
}
