/** Places that name the version of the package, which a release changes together. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { VERSION } from '#daemon/main/version';
import { repositoryRoot } from '#test/support/prerequisites';

const text = (file: string) => readFileSync(join(repositoryRoot(), file), 'utf8');

it('is the same in package.json, the daemon, its devices, README and the changelog', async () => {
  const manifest: { version: string } = JSON.parse(text('package.json'));
  expect(VERSION).toBe(manifest.version);
  await using provider = await createEmbedded();
  await using context = await provider.open('iwarp0');
  expect((await context.queryDevice()).fwVer).toBe(VERSION);
  expect(text('README.md')).toContain(`iwarpd-${VERSION}.tgz`);
  expect(text('daemon/CHANGELOG.md')).toContain(`\n## ${VERSION}\n`);
});

it('can be read by tools through the name of the package', () => {
  const manifest: unknown = createRequire(import.meta.url)('iwarpd/package.json');
  expect(manifest).toMatchObject({ name: 'iwarpd', version: VERSION });
});
