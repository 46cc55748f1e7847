/** Podman in a world: its storage, settings and containers go with the world. */
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { CommandOptions, Outcome, World } from './world.ts';

interface ContainerState {
  readonly running: boolean;
  readonly exitCode: number;
  /** The pid of its first process, as the world sees it. */
  readonly pid: number;
}

/** Options of `Podman.start` and `Podman.run` for a container. */
interface ContainerOptions {
  readonly name?: string;
  /** As for `podman run`, such as `--read-only`. */
  readonly flags?: readonly string[];
  /** In place of the image's CMD. */
  readonly words?: readonly string[];
  readonly timeoutMs?: number;
}

/** Podman, with the containers of one world. */
export class Podman {
  readonly world: World;

  private constructor(world: World) {
    this.world = world;
  }

  static async open(world: World): Promise<Podman> {
    const driver = await storageDriver(world);
    const settings = world.file('containers.conf');
    const storage = world.file('storage.conf');
    await writeFile(settings, containersConf(world));
    const places = [`graphroot = "${world.file('storage')}"`, 'runroot = "/run/storage"'];
    await writeFile(storage, ['[storage]', `driver = "${driver}"`, ...places, ''].join('\n'));
    world.setEnvironment({
      CONTAINERS_CONF: settings,
      CONTAINERS_STORAGE_CONF: storage,
      // There is no systemd in a world to call health checks.
      DISABLE_HC_SYSTEMD: 'true',
    });
    return new Podman(world);
  }

  /** Runs a podman command that must succeed; returns its output. */
  command(words: readonly string[], options?: CommandOptions): Promise<string> {
    return this.world.output(['podman', ...words], options);
  }

  run(image: string, options: ContainerOptions = {}): Promise<Outcome> {
    const { flags = [], words = [], timeoutMs } = options;
    const limit = timeoutMs === undefined ? {} : { timeoutMs };
    return this.world.run(['podman', 'run', '--rm', ...flags, image, ...words], limit);
  }

  /** Starts a container, which runs until it ends or `remove` ends it. */
  async start(image: string, name: string, options: ContainerOptions = {}): Promise<void> {
    const { flags = [], words = [] } = options;
    await this.command(['run', '--detach', '--name', name, ...flags, image, ...words]);
  }

  /** Runs a command in a running container. */
  exec(name: string, words: readonly string[], flags: readonly string[] = []): Promise<Outcome> {
    return this.world.run(['podman', 'exec', ...flags, name, ...words]);
  }

  /** The output of the container's first process. */
  async logs(name: string): Promise<string> {
    const { stdout, stderr } = await this.world.run(['podman', 'logs', name]);
    return stdout + stderr;
  }

  async state(name: string): Promise<ContainerState> {
    const format = '{{.State.Running}} {{.State.ExitCode}} {{.State.Pid}}';
    const text = await this.command(['inspect', '--format', format, name]);
    const [running, exitCode, pid] = text.trim().split(' ');
    return { running: running === 'true', exitCode: Number(exitCode), pid: Number(pid) };
  }

  /** Kills and removes containers in order: each before those whose namespaces it shares. */
  async remove(...names: readonly string[]): Promise<void> {
    for (const name of names) {
      await this.world.run(['podman', 'rm', '--force', '--volumes', '--time', '0', name]);
    }
  }
}

/** Overlays if the machine supports them here, else whole copies, which take longer. */
async function storageDriver(world: World): Promise<'overlay' | 'vfs'> {
  const folder = world.file('overlay-trial');
  const parts = ['lower', 'upper', 'work', 'merged'].map((name) => join(folder, name));
  for (const part of parts) await mkdir(part, { recursive: true });
  const [lower, upper, work, merged = ''] = parts;
  const options = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
  const mount = ['mount', '-t', 'overlay', '-o', options, 'overlay', merged];
  const { status } = await world.run(mount);
  if (status !== 0) return 'vfs';
  await world.output(['umount', merged]);
  return 'overlay';
}

function containersConf(world: World): string {
  // The default limits may exceed this machine's, which root may be unable to raise.
  const limits = readFileSync('/proc/self/limits', 'utf8');
  const [, files = '1024'] = /^Max open files +\d+ +(\d+)/m.exec(limits) ?? [];
  return `[containers]
pids_limit = 0
default_ulimits = ["nofile=${files}:${files}", "nproc=8192:8192"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "/run/libpod"
[network]
network_backend = "netavark"
network_config_dir = "${world.file('networks')}"
`;
}
