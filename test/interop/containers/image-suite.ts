/** The image itself: its contents, its user, how it starts and stops. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { repositoryRoot } from '#test/support/prerequisites';
import { BASE_IMAGE, IMAGE } from './image.ts';
import type { Podman } from './podman.ts';
import { becomesReady, eventually, tierInUse } from './status.ts';

/** Maximum size of the image's own layers, without its base. */
const OWN_SIZE_MAX_BYTES = 60 << 20;
const ISOLATED = ['--network', 'none'];
/** Flags for a container with the fewest privileges. */
const STRICT = ['--cap-drop=all', '--security-opt=no-new-privileges'];
const READ_ONLY = ['--read-only', '--read-only-tmpfs=false'];
/** Mounts that a read-only root file system needs, from README.md. */
const WRITABLE = ['--volume=iwarpd-run:/run/iwarpd', '--tmpfs=/tmp'];
/** The path of the socket that containers of a daemon and its programs share. */
const SHARED_SOCKET = '--env=IWARPD_SOCKET=/run/rnic/iwarpd/iwarpd.sock';

const config = z.object({
  Config: z.object({
    User: z.string(),
    Env: z.array(z.string()),
    Entrypoint: z.array(z.string()),
    Cmd: z.array(z.string()),
    WorkingDir: z.string(),
    StopSignal: z.string(),
    Labels: z.record(z.string(), z.string()),
    ExposedPorts: z.unknown().optional(),
    Volumes: z.unknown().optional(),
  }),
  HealthCheck: z.object({ Test: z.array(z.string()) }).optional(),
  Healthcheck: z.object({ Test: z.array(z.string()) }).optional(),
  Size: z.number(),
});

/** Declares the tests; `given` returns the podman that has the image. */
export function imageSuite(given: () => Podman): void {
  describe('the image', () => {
    const started: string[] = [];
    /** Starts a container that the end of the test removes. */
    async function start(
      name: string,
      flags: readonly string[],
      words: readonly string[] = [],
    ): Promise<void> {
      started.unshift(name);
      await given().start(IMAGE, name, { flags, words });
    }
    function run(words: readonly string[], flags: readonly string[] = []) {
      return given().run(IMAGE, { words, flags: [...ISOLATED, ...flags] });
    }
    function shell(script: string) {
      return run(['-c', script], ['--entrypoint', 'sh']);
    }
    afterEach(() => given().remove(...started.splice(0)));

    async function inspected() {
      const text = await given().command(['image', 'inspect', IMAGE]);
      return z.tuple([config]).parse(JSON.parse(text))[0];
    }

    it('has labels, and a declared entry point', async () => {
      const { Config: image, HealthCheck, Healthcheck } = await inspected();
      expect(image).toMatchObject({
        User: '10001:10001',
        Entrypoint: ['tini', '-s', '--', 'iwarpd'],
        Cmd: ['start'],
        WorkingDir: '/run/iwarpd',
        StopSignal: 'SIGTERM',
        Labels: {
          'org.opencontainers.image.title': 'iwarpd',
          'org.opencontainers.image.licenses': 'MIT',
        },
      });
      expect(image.Env).toContain('IWARPD_SOCKET=/run/iwarpd/iwarpd.sock');
      // It listens on nothing by default, and stores nothing.
      expect(image.ExposedPorts).toBeUndefined();
      expect(image.Volumes).toBeUndefined();
      const check = ['CMD', 'iwarpd', 'wait', '--ready', '--timeout', '3'];
      expect((HealthCheck ?? Healthcheck)?.Test).toEqual(check);
    });

    it('holds the program and no build files', async () => {
      const manifest = z
        .object({ devDependencies: z.record(z.string(), z.string()) })
        .parse(JSON.parse(readFileSync(join(repositoryRoot(), 'package.json'), 'utf8')));
      const { stdout } = await shell(
        'ls -A /opt/iwarpd /opt/iwarpd/dist; cd /opt/iwarpd/node_modules && ls -d * @*/*; ' +
          'find / -xdev -name .git -o -xdev -name "*.test.*" -path "/opt/iwarpd/dist/*" 2>/dev/null; ' +
          'command -v gcc cc make python3; ls -A /var/lib/apt/lists /var/cache/apt',
      );
      const names = stdout.split('\n');
      expect(names).toEqual(expect.arrayContaining(['daemon', 'native-bridge', 'koffi', 'zod']));
      expect(names.filter((name) => name in manifest.devDependencies)).toEqual([]);
      const banned =
        /^(test|src|\.git|\.cache)$|\.git$|\.test\.|\/(gcc|cc|make|python3)$|_dists_|pkgcache|^archives$/;
      expect(names.filter((name) => banned.test(name))).toEqual([]);
    });

    it('does what README.md shows', async () => {
      const readme = readFileSync(join(repositoryRoot(), 'docker/README.md'), 'utf8');
      const lines = readme.match(/^docker run .*$/gm) ?? [];
      expect(lines.length).toBeGreaterThan(1);
      for (const line of lines) {
        const call = ['bash', '-c', line.replace('docker', 'podman')];
        const { status, stderr } = await given().world.run(call);
        expect({ line, status }, stderr).toEqual({ line, status: 0 });
      }
    });

    it('adds no more than its size to the base', async () => {
      const { Size: size } = await inspected();
      const base = await given().command(['image', 'inspect', '--format', '{{.Size}}', BASE_IMAGE]);
      expect(size - Number(base)).toBeLessThan(OWN_SIZE_MAX_BYTES);
    });

    it('runs as a user that is not root, and needs no capability', async () => {
      const { stdout } = await run(
        ['-c', 'id -u; grep CapEff /proc/self/status'],
        [...STRICT, '--entrypoint', 'sh'],
      );
      expect(stdout).toBe('10001\nCapEff:\t0000000000000000\n');
      const { status, stdout: report } = await run(['doctor'], STRICT);
      expect(report).not.toMatch(/^(fail|warn)/m);
      expect(report).toMatch(/^ok +preload /m);
      expect(report).toMatch(/^ok +crc32c +computed by native code/m);
      expect(status).toBe(0);
    });

    it('shows the device to ibv_devices, and runs rping against itself', async () => {
      const listed = await run(['run', '--', 'ibv_devices'], STRICT);
      expect(listed.stdout).toMatch(/iwarp0\s+[0-9a-f]{16}/);
      const both =
        'rping -s -a 127.0.0.1 -C 5 & until rping -c -a 127.0.0.1 -C 5; do sleep 0.1; done; wait';
      const rping = await run(['run', '--', 'sh', '-c', both], STRICT);
      expect(rping).toMatchObject({ status: 0 });
    });

    it('is healthy when the daemon is ready, and only then', async () => {
      await start('healthy', ISOLATED);
      await becomesReady(given(), 'healthy');
      const check = ['podman', 'healthcheck', 'run', 'healthy'];
      expect(await given().world.run(check)).toMatchObject({ status: 0 });
      // This one runs as long, but without a daemon.
      await start('unwell', [...ISOLATED, '--entrypoint', 'sleep'], ['infinity']);
      const unwell = await given().exec('unwell', ['iwarpd', 'wait', '--ready', '--timeout', '1']);
      expect(unwell.status).not.toBe(0);
      expect(await given().world.run([...check.slice(0, -1), 'unwell'])).toMatchObject({
        status: 1,
      });
    });

    it('shuts down cleanly when it is stopped, and logs it', async () => {
      await start('stopped', ISOLATED);
      await becomesReady(given(), 'stopped');
      await given().command(['stop', '--time', '30', 'stopped']);
      expect(await given().state('stopped')).toMatchObject({ running: false, exitCode: 0 });
      expect(await given().logs('stopped')).toContain('"msg":"stopped"');
    });

    it('passes a stop on to the program that it runs', async () => {
      await start('program', ISOLATED, ['run', '--', 'rping', '-s', '-a', '127.0.0.1']);
      await eventually('rping', async () => {
        const { stdout } = await given().exec('program', ['cat', '/proc/net/tcp']);
        // rping's port 7174, listening.
        return / 0100007F:1C06 .* 0A /.test(stdout) ? true : undefined;
      });
      await given().command(['stop', '--time', '30', 'program']);
      // A shell's status for SIGTERM.
      expect((await given().state('program')).exitCode).toBe(143);
    });

    it('reaps the processes that programs leave behind', async () => {
      await start('orphans', ISOLATED);
      await becomesReady(given(), 'orphans');
      const script = 'for i in 1 2 3; do (sleep 0.1 &) ; done; sleep 0.5; cat /proc/[0-9]*/stat';
      const { stdout } = await given().exec('orphans', ['sh', '-c', script]);
      expect(stdout).toMatch(/^1 \(/m);
      expect(stdout).not.toMatch(/^\d+ \(.*\) Z /m);
    });

    it('works on a read-only root file system with the two mounts of README.md', async () => {
      await start('reader', [...ISOLATED, ...STRICT, ...READ_ONLY, ...WRITABLE]);
      await becomesReady(given(), 'reader');
      const words = ['iwarpd', 'run', '--', 'ibv_devices'];
      expect((await given().exec('reader', words)).stdout).toContain('iwarp0');
      const fresh = ['iwarpd', 'run', '--fresh', '--', 'ibv_devices'];
      expect((await given().exec('reader', fresh)).stdout).toContain('iwarp0');
      const without = await run(['start'], READ_ONLY);
      expect(without.status).not.toBe(0);
      expect(without.stderr).toMatch(
        /^iwarpd: cannot create .*: read-only file system \(EROFS\); .*\n$/,
      );
      await given().command(['volume', 'rm', '--force', 'iwarpd-run']);
    });

    it('gives a second user no access to the daemon', async () => {
      await start('owner', ISOLATED);
      await becomesReady(given(), 'owner');
      const other = ['--user', '10002:10002'];
      const status = await given().exec('owner', ['iwarpd', 'status'], other);
      expect(status.status).not.toBe(0);
      expect(status.stderr).toContain('EACCES');
      const listed = await given().exec('owner', ['ls', '/run/iwarpd'], other);
      expect(listed.stderr).toContain('Permission denied');
    });

    it('runs as another user that has a directory for the socket', async () => {
      // A user without a passwd entry.
      const other = ['--user=20002:20002', '--passwd=false'];
      const refused = await run(['start'], other);
      expect(refused.status).not.toBe(0);
      expect(refused.stderr).toMatch(/belongs to user 10001, not to 20002; choose a socket/);
      const place = '--env=IWARPD_SOCKET=/tmp/iwarpd/iwarpd.sock';
      await start('another', [...ISOLATED, ...STRICT, ...other, place]);
      await becomesReady(given(), 'another');
      const words = ['iwarpd', 'run', '--', 'ibv_devices'];
      expect((await given().exec('another', words)).stdout).toContain('iwarp0');
    });

    describe('reaches the memory of a program in another container', () => {
      /** A program that registers memory and waits, so the daemon must choose a tier. */
      const waiting = ['run', '--', 'ibv_rc_pingpong', '-g', '0'];

      async function pair(flags: readonly string[], daemonFlags: readonly string[] = []) {
        const { world } = given();
        const place = world.file('rnic');
        await world.output(['install', '-d', '-m', '0700', '-o', '10001', '-g', '10001', place]);
        const shared = [...STRICT, SHARED_SOCKET, `--volume=${place}:/run/rnic`];
        await start('daemon', [...ISOLATED, ...shared, '--ipc=shareable', ...daemonFlags]);
        await becomesReady(given(), 'daemon');
        const joined = ['--network=container:daemon', ...shared, ...flags];
        await start('beside', joined, waiting);
        return await tierInUse(given(), 'daemon');
      }

      it('by process_vm in a shared process namespace', async () => {
        const { tier } = await pair(['--pid=container:daemon']);
        expect(tier).toBe('process_vm');
      });

      it('by an agent in a separate process namespace', async () => {
        const { tier, reason } = await pair([]);
        expect(tier).toBe('agent');
        expect(reason).toContain('another PID namespace');
      });

      it('by an agent where a seccomp profile refuses process_vm', async () => {
        const profile = given().world.file('seccomp.json');
        writeFileSync(profile, JSON.stringify(withoutProcessVm()));
        const flag = `--security-opt=seccomp=${profile}`;
        const { tier, reason } = await pair(['--pid=container:daemon'], [flag]);
        expect(tier).toBe('agent');
        expect(reason).toMatch(/process_vm_readv refused: (ENOSYS|EPERM)/);
      });
    });
  });
}

/** Podman's default profile, without the calls that access another process's memory. */
function withoutProcessVm(): unknown {
  const profile = z
    .looseObject({ syscalls: z.array(z.looseObject({ names: z.array(z.string()) })) })
    .parse(JSON.parse(readFileSync('/usr/share/containers/seccomp.json', 'utf8')));
  const syscalls = profile.syscalls
    .map((rule) => ({ ...rule, names: rule.names.filter((one) => !/^process_vm_/.test(one)) }))
    .filter(({ names }) => names.length > 0);
  return { ...profile, syscalls };
}
