/** The files of the checkout that go into an image. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repositoryRoot } from '#test/support/prerequisites';
import type { World } from './world.ts';

/** Copies the checkout to `folder`, made if missing, without files that .dockerignore names. */
export async function copyContext(world: World, folder: string): Promise<void> {
  const root = repositoryRoot();
  const ignored = readFileSync(join(root, '.dockerignore'), 'utf8').split('\n');
  const names = readdirSync(root).filter((name) => !ignored.includes(name));
  const sources = names.map((name) => join(root, name));
  await world.output(['mkdir', '--parents', folder]);
  await world.output(['cp', '--recursive', '--target-directory', folder, ...sources]);
}
