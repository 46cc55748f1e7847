/** Consistency of the examples in `docker/`; needs no container. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { repositoryRoot } from '../support/prerequisites.ts';
import { readStages } from './containers/dockerfile.ts';
import {
  containersOf,
  contradictions,
  parseManifest,
  podOf,
  readManifest,
  restrictedObstacles,
} from './containers/kubernetes.ts';
import { readWorkflow } from './containers/workflow.ts';

const docker = join(repositoryRoot(), 'docker');
const manifests = readdirSync(join(docker, 'kubernetes'));
const stages = readStages(join(docker, 'Dockerfile'));

/** An instruction of the stage that becomes the image. */
function imageSays(name: string): string {
  return stages.at(-1)?.instructions.findLast((each) => each.name === name)?.text ?? '';
}
const [imageUser] = imageSays('USER').split(':').map(Number);
const imageSocket = imageSays('ENV').replace('IWARPD_SOCKET=', '');

describe('docker/kubernetes', () => {
  it('has the manifests that README.md lists', () => {
    const readme = readFileSync(join(docker, 'README.md'), 'utf8');
    expect(manifests.length).toBe(3);
    for (const name of manifests) expect(readme).toContain(`kubernetes/${name}`);
  });

  for (const name of manifests) {
    const manifest = readManifest(join(docker, 'kubernetes', name));
    const pod = podOf(manifest);

    it(`${name} does not contradict itself`, () => {
      expect(contradictions(manifest)).toEqual([]);
    });

    it(`${name} does not contradict the image`, () => {
      expect(pod.securityContext?.runAsUser).toBe(imageUser);
      for (const each of containersOf(pod)) {
        expect(each.image).toBe('iwarpd');
        const named = each.env?.some((one) => one.name === 'IWARPD_SOCKET') === true;
        if (!named && each.command !== undefined && each.command[0] !== 'iwarpd') continue;
        const socket = each.env?.find((one) => one.name === 'IWARPD_SOCKET')?.value ?? imageSocket;
        const mount = (each.volumeMounts ?? []).find((one) =>
          socket.startsWith(`${one.mountPath}/`),
        );
        expect(mount, `${each.name} has ${socket} on a volume`).toBeDefined();
        const volume = pod.volumes?.find((one) => one.name === mount?.name) ?? {};
        // The daemon makes its directory private; one that Kubernetes makes is open to all users.
        if ('emptyDir' in volume) expect(dirname(socket)).not.toBe(mount?.mountPath);
      }
    });

    it(`${name} requests only what its purpose needs`, () => {
      const needed: Readonly<Record<string, readonly string[]>> = {
        'sidecar.yaml': [],
        'program.yaml': ['hostPath socket'],
        'daemonset.yaml': [
          'hostNetwork',
          'hostPath socket',
          'socket-directory may be root',
          'socket-directory adds CHOWN, FOWNER',
        ],
      };
      expect(restrictedObstacles(pod)).toEqual(needed[name]);
    });
  }

  it('shares one node directory between daemonset.yaml and program.yaml', () => {
    const places = ['daemonset.yaml', 'program.yaml'].map((name) =>
      podOf(readManifest(join(docker, 'kubernetes', name))).volumes?.map((volume) =>
        'hostPath' in volume ? volume.hostPath.path : undefined,
      ),
    );
    expect(places[0]).toEqual([dirname(imageSocket)]);
    expect(places[1]).toEqual(places[0]);
  });

  const sidecar = readFileSync(join(docker, 'kubernetes/sidecar.yaml'), 'utf8');
  const daemonset = readFileSync(join(docker, 'kubernetes/daemonset.yaml'), 'utf8');
  it.each([
    ['a field that is no field', sidecar, 'mountPath', 'mountPaht', /Unrecognized key.*mountPaht/],
    ['a text in place of a list', sidecar, '[rping, -s, -v, -C, "10"]', 'rping', /command/],
    ['a number in place of a text', sidecar, '"10"', '10', /command/],
    ['a port that is none', daemonset, 'port: 9400', 'port: 94000', /httpGet/],
  ])('finds %s', (_, text, before, after, complaint) => {
    expect(text).toContain(before);
    expect(() => parseManifest(text.replace(before, after))).toThrow(complaint);
  });

  it.each([
    ['a volume that is not there', sidecar, '- name: rnic\n', '- name: rnc\n', /no volume rnc/],
    [
      'a selector for other pods',
      daemonset,
      'name: iwarpd\n  template',
      'name: x\n  template',
      /no label/,
    ],
    ['a probe where nothing listens', daemonset, '"127.0.0.1:9400"', '"127.0.0.1:9401"', /probed/],
    [
      'root that may not be root',
      daemonset,
      'runAsNonRoot: false',
      'runAsNonRoot: true',
      /is root/,
    ],
    [
      'a probe that is on another host',
      daemonset,
      'hostNetwork: true',
      'hostNetwork: false',
      /loopback/,
    ],
  ])('finds %s', (_, text, before, after, complaint) => {
    expect(text).toContain(before);
    const found = contradictions(parseManifest(text.replace(before, after)));
    expect(found.join('\n')).toMatch(complaint);
  });
});

describe('docker/compose.yaml', () => {
  it('names the image that the Dockerfile makes, in every service', () => {
    const { services } = parse(readFileSync(join(docker, 'compose.yaml'), 'utf8'));
    const images = Object.values<{ image: string }>(services).map(({ image }) => image);
    expect(images).toEqual(images.map(() => 'iwarpd'));
  });
});

describe('docker/github-actions.yaml', () => {
  it('uses the Node.js that README recommends', () => {
    const { uses } = readWorkflow(join(docker, 'github-actions.yaml'), {
      IWARPD_REPOSITORY: 'file:///srv/iwarpd',
      IWARPD_REVISION: 'HEAD',
    });
    expect(uses.length).toBe(4);
    const text = readFileSync(join(docker, 'github-actions.yaml'), 'utf8');
    expect(text).toContain('node-version: 24');
  });
});
