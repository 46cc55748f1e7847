/** The two nodes of `docker/compose.yaml`, as docker-compose brings them up. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { repositoryRoot } from '#test/support/prerequisites';
import { compose, serveDocker } from './compose.ts';
import type { Podman } from './podman.ts';
import { type Status, statusOf, tierInUse } from './status.ts';
import type { CommandOptions } from './world.ts';

const FILE = join(repositoryRoot(), 'docker/compose.yaml');
const RUN_TIMEOUT_MS = 150_000;

/** A counter of the device that rdma_cm uses. */
function counter(status: Status | undefined, name: string): number | undefined {
  return status?.devices.find(({ device }) => device.name === 'iwarp0')?.counters[name];
}

/** Declares the tests; `given` returns the podman that has the image. */
export function composeSuite(given: () => Podman): void {
  describe('compose.yaml', () => {
    function call(words: readonly string[], options?: CommandOptions) {
      return compose(given().world, FILE, words, options);
    }
    beforeAll(() => serveDocker(given()));
    afterAll(() => call(['down', '--volumes', '--timeout', '2']));

    it('is valid for docker-compose', async () => {
      const { status, stdout } = await call(['config', '--services']);
      expect(status).toBe(0);
      expect(stdout.trim().split('\n').sort()).toEqual(['client', 'node-a', 'node-b', 'server']);
    });

    it('is the file that README.md shows', () => {
      const readme = readFileSync(join(repositoryRoot(), 'docker/README.md'), 'utf8');
      const calls = [...readme.matchAll(/^docker compose -f docker\/compose.yaml (.*)$/gm)];
      expect(calls.map(([, words]) => words)).toEqual([
        'build',
        'run --rm client',
        'down --volumes',
      ]);
    });

    it('carries ib_write_bw -R from one node to the other', async () => {
      const { status, stdout, stderr } = await call(['run', '--rm', '-T', 'client'], {
        timeoutMs: RUN_TIMEOUT_MS,
      });
      expect({ status, said: status === 0 ? '' : stdout + stderr }).toEqual({
        status: 0,
        said: '',
      });
      // Size, iterations, and bandwidth that is not 0.
      expect(stdout).toMatch(/^ 65536 +2000 +\d+\.\d+ +(?!0\.00 )\d+\.\d+ /m);

      const names = (await given().command(['ps', '--format', '{{.Names}}'])).trim().split('\n');
      const [nodeA = '', nodeB = ''] = ['node-a', 'node-b'].map((part) =>
        names.find((name) => name.includes(part)),
      );
      // Counters of both daemons: every write left one and reached the other.
      const [server, client] = await Promise.all([nodeA, nodeB].map((n) => statusOf(given(), n)));
      expect(counter(client, 'out_writes')).toBeGreaterThanOrEqual(2000);
      expect(counter(server, 'in_writes')).toBeGreaterThanOrEqual(2000);
      const addresses = await Promise.all(
        [nodeA, nodeB].map(async (n) => (await given().exec(n, ['hostname', '-i'])).stdout.trim()),
      );
      expect(new Set(addresses).size).toBe(2);
      expect(stdout).toContain('Device         : iwarp0');
    });

    it('allows the daemons to reach the memory of the programs beside them', async () => {
      const waiting = ['client', 'run', '--', 'ibv_rc_pingpong', '-g', '0'];
      const { status, stderr } = await call(['run', '--detach', '--name', 'holder', ...waiting]);
      expect({ status, said: status === 0 ? '' : stderr }).toEqual({ status: 0, said: '' });
      const names = await given().command(['ps', '--format', '{{.Names}}']);
      const node = names.split('\n').find((name) => name.includes('node-b')) ?? '';
      const { tier } = await tierInUse(given(), node);
      expect(tier).toBe('process_vm');
      await given().remove('holder');
    });

    it('reports when the daemons are healthy', async () => {
      const states = await given().command(['ps', '--format', '{{.Names}} {{.Status}}']);
      expect(states).toMatch(/node-a.*\(healthy\)/);
      expect(states).toMatch(/node-b.*\(healthy\)/);
    });

    it('ends with all its containers, networks and volumes', async () => {
      // Podman, unlike Docker, does not remove a container while others share its namespaces.
      expect(await call(['rm', '--force', '--stop', 'client', 'server'])).toMatchObject({
        status: 0,
      });
      const { status, stderr } = await call(['down', '--volumes', '--timeout', '10']);
      expect({ status, said: status === 0 ? '' : stderr }).toEqual({ status: 0, said: '' });
      const own = ['--quiet', '--filter', 'label=com.docker.compose.project'];
      for (const listing of [
        ['ps', '--all'],
        ['volume', 'ls'],
        ['network', 'ls'],
      ]) {
        expect(await given().command([...listing, ...own]), listing.join(' ')).toBe('');
      }
    });
  });
}
