/** Reasons why this machine cannot build or run containers. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { patience } from '#test/support/patience';
import { missingPackages } from '#test/support/prerequisites';
import { World } from './world.ts';

const execute = promisify(execFile);

/** The release of Debian that the Dockerfile builds on. */
export const DEBIAN_RELEASE = 'bookworm';

/**
 * The mirror of this machine's own packages; undefined if it lacks the release of the Dockerfile.
 */
export async function debianMirror(): Promise<string | undefined> {
  const format = '$(RELEASE) $(COMPONENT) $(REPO_URI)';
  const words = ['indextargets', '--format', format, 'Created-By: Packages', 'Origin: Debian'];
  try {
    const { stdout } = await execute('apt-get', words, { timeout: patience() });
    const line = stdout.split('\n').find((text) => text.startsWith(`${DEBIAN_RELEASE} main `));
    return line?.split(' ')[2];
  } catch {
    return undefined;
  }
}

/** The reason why the image cannot be built here; undefined when it can. */
export async function builderObstacle(): Promise<string | undefined> {
  if (process.env['IWARPD_CONTAINERS'] === 'plain') return 'IWARPD_CONTAINERS=plain';
  const missing = missingPackages('containers');
  if (missing.length > 0) return `missing packages: ${missing.join(' ')}`;
  return await rootObstacle();
}

/** The reason why no plain root file system can be made and used here; undefined when one can. */
export async function rootObstacle(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'needs root';
  const missing = missingPackages('plain-root');
  if (missing.length > 0) return `missing packages: ${missing.join(' ')}`;
  const mirror = await debianMirror();
  if (mirror === undefined) return `apt names no mirror of Debian ${DEBIAN_RELEASE}`;
  return (await downloadObstacle(mirror)) ?? (await worldObstacle());
}

async function downloadObstacle(mirror: string): Promise<string | undefined> {
  const folder = mkdtempSync(join(tmpdir(), 'iwarpd-mirror-'));
  const release = `${mirror.replace(/\/$/, '')}/dists/${DEBIAN_RELEASE}/Release`;
  try {
    const [mirrored, registered] = await Promise.all([
      succeeds('/usr/lib/apt/apt-helper', ['download-file', release, join(folder, 'Release')]),
      succeeds('npm', ['view', 'koffi', 'version']),
    ]);
    if (!mirrored) return 'the Debian mirror does not answer';
    return registered ? undefined : "npm's registry does not answer";
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function worldObstacle(): Promise<string | undefined> {
  try {
    const world = await World.open();
    await world.close();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

async function succeeds(program: string, words: readonly string[]): Promise<boolean> {
  try {
    await execute(program, words, { timeout: patience() });
    return true;
  } catch {
    return false;
  }
}
