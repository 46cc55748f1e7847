/** The pods of `docker/kubernetes`, run container by container as their manifests say. */
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { repositoryRoot } from '#test/support/prerequisites';
import { containersOf, podOf, readManifest } from './kubernetes.ts';
import { RunningPod } from './pod.ts';
import type { Podman } from './podman.ts';
import { eventually, statusOf, tierInUse } from './status.ts';

const FOLDER = join(repositoryRoot(), 'docker/kubernetes');
/** Hides iwarpd in the image of the program. */
const NOTHING_OF_IWARPD = ['--tmpfs=/opt/iwarpd:notmpcopyup'];

/** Declares the tests; `given` returns the podman that has the image. */
export function kubernetesSuite(given: () => Podman): void {
  describe('kubernetes', () => {
    const pods: RunningPod[] = [];
    async function run(file: string, flags: Record<string, readonly string[]> = {}) {
      const manifest = readManifest(join(FOLDER, file));
      const pod = new RunningPod(given(), manifest.metadata.name, podOf(manifest), { flags });
      pods.unshift(pod);
      await pod.start();
      return { pod, spec: podOf(manifest) };
    }
    afterEach(async () => {
      for (const pod of pods.splice(0)) await pod.remove();
    });

    it('sidecar.yaml: serves a program whose image does not contain iwarpd', async () => {
      const { pod } = await run('sidecar.yaml', { program: NOTHING_OF_IWARPD });
      const program = pod.container('program');
      const gone = await given().exec(program, ['ls', '/opt/iwarpd']);
      expect(gone.stdout).toBe('');
      const words = ['rping', '-c', '-a', '127.0.0.1', '-C', '10', '-v'];
      const client = await eventually('an answer of rping -s', async () => {
        const outcome = await given().exec(program, words);
        return outcome.status === 0 ? outcome : undefined;
      });
      expect(client.stdout.match(/^ping data: rdma-ping-/gm)?.length).toBe(10);
      await eventually('the end of rping -s', async () =>
        (await given().state(program)).running ? undefined : true,
      );
      expect(await given().state(program)).toMatchObject({ exitCode: 0 });
      expect((await given().logs(program)).match(/server ping data: rdma-ping-/g)?.length).toBe(10);
    });

    it('sidecar.yaml: reaches the memory of its program directly', async () => {
      const { pod } = await run('sidecar.yaml', { program: NOTHING_OF_IWARPD });
      const program = pod.container('program');
      const waiting = ['exec', '--detach', program, 'ibv_rc_pingpong', '-g', '0'];
      await given().command(waiting);
      const { tier } = await tierInUse(given(), pod.container('iwarpd'));
      expect(tier).toBe('process_vm');
    });

    it('daemonset.yaml: passes its probes, and fails them once the daemon has stopped', async () => {
      const { pod, spec } = await run('daemonset.yaml');
      const [daemon] = spec.containers;
      const { readinessProbe, livenessProbe } = daemon;
      if (readinessProbe === undefined || livenessProbe === undefined) throw new Error('no probe');
      await pod.becomeWell(daemon.name, readinessProbe);
      await pod.becomeWell(daemon.name, livenessProbe);
      await given().command(['stop', '--time', '10', pod.container(daemon.name)]);
      expect(await pod.probe(daemon.name, readinessProbe)).toBe(false);
      expect(await pod.probe(daemon.name, livenessProbe)).toBe(false);
    });

    it('daemonset.yaml: answers only probes to clients without the token', async () => {
      const { pod, spec } = await run('daemonset.yaml');
      const [{ name, readinessProbe }] = spec.containers;
      if (readinessProbe === undefined || !('httpGet' in readinessProbe))
        throw new Error('no probe');
      await pod.becomeWell(name, readinessProbe);
      const { host = '127.0.0.1', port } = readinessProbe.httpGet;
      const place = `http://${host}:${port}`;
      for (const path of ['/mrs', '/qps', '/metrics', '/devices']) {
        expect([path, await pod.ask(place + path)]).toEqual([path, 401]);
      }
      const file = '/run/iwarpd/iwarpd.sock.http-token';
      const { stdout } = await given().exec(pod.container(name), ['cat', file]);
      expect(await pod.ask(`${place}/mrs`, { token: stdout.trim() })).toBe(200);
    });

    it('program.yaml: finds the RNIC of its node, whose daemon reaches its memory by an agent', async () => {
      const { pod: node } = await run('daemonset.yaml');
      const { pod, spec } = await run('program.yaml');
      const program = pod.container('program');
      await eventually('the end of the program', async () =>
        (await given().state(program)).running ? undefined : true,
      );
      expect(await given().state(program)).toMatchObject({ exitCode: 0 });
      expect(await given().logs(program)).toMatch(/hca_id:\s+iwarp0/);
      // The same pod with a program that holds memory.
      const [first] = spec.containers;
      const args = ['run', '--', 'ibv_rc_pingpong', '-g', '0'];
      const held = { ...first, name: 'holder', args };
      const holder = new RunningPod(given(), 'holder', { ...spec, containers: [held] });
      pods.unshift(holder);
      await holder.start();
      const { tier, reason } = await tierInUse(given(), node.container('iwarpd'));
      expect({ tier, reason }).toEqual({
        tier: 'agent',
        reason: expect.stringContaining('another PID namespace'),
      });
      const { clients } = await statusOf(given(), node.container('iwarpd'));
      // The node's daemon answers, not one that `run` started.
      expect(clients.map(({ uid }) => uid)).toContain(10001);
    });

    it('daemonset.yaml: starts again after an earlier daemon', async () => {
      const { pod } = await run('daemonset.yaml');
      await pod.remove();
      pods.splice(0);
      const { pod: again, spec } = await run('daemonset.yaml');
      const [{ name, readinessProbe }] = spec.containers;
      if (readinessProbe === undefined) throw new Error('no probe');
      await again.becomeWell(name, readinessProbe);
      expect(containersOf(spec).length).toBe(2);
    });
  });
}
