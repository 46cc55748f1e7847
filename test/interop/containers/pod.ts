/** Runs pods like a node of a cluster, with the containers that their manifests define. */
import { quiet } from '#test/support/patience';
import { IMAGE } from './image.ts';
import type { PodContainer, PodSpec, Probe } from './kubernetes.ts';
import type { Podman } from './podman.ts';

const INIT_TIMEOUT_MS = 90_000;
/** Defaults of Kubernetes for a probe. */
const PERIOD_SECONDS = 10;
const FAILURES_MAX = 3;
const PROBE_TIMEOUT_SECONDS = 1;

/** A test's changes to a manifest. */
interface PodChanges {
  /** More flags for podman, by the container's name. */
  readonly flags?: Readonly<Record<string, readonly string[]>>;
}

/** A pod whose containers have started. */
export class RunningPod {
  readonly name: string;
  readonly #podman: Podman;
  readonly #spec: PodSpec;
  readonly #changes: PodChanges;
  readonly #started: string[] = [];

  constructor(podman: Podman, name: string, spec: PodSpec, changes: PodChanges = {}) {
    this.#podman = podman;
    this.name = name;
    this.#spec = spec;
    this.#changes = changes;
  }

  /** The name by which podman knows a container. */
  container(name: string): string {
    return `${this.name}-${name}`;
  }

  /** Starts all containers in order, each once the previous one has ended or is ready. */
  async start(): Promise<void> {
    await this.#makeVolumes();
    // A container that only reaps processes holds the namespaces of a pod's containers.
    const network = this.#spec.hostNetwork === true ? 'host' : 'none';
    await this.#podman.start(IMAGE, this.container('pause'), {
      flags: ['--network', network, '--ipc', 'shareable', '--entrypoint', 'tini'],
      words: ['--', 'sleep', 'infinity'],
    });
    this.#started.unshift(this.container('pause'));
    for (const each of this.#spec.initContainers ?? []) {
      if (each.restartPolicy === 'Always') await this.#startOne(each);
      else await this.#runToEnd(each);
    }
    for (const each of this.#spec.containers) await this.#startOne(each);
  }

  /** Runs a probe once, as the cluster does every period; true if it succeeds. */
  async probe(name: string, asked: Probe): Promise<boolean> {
    const seconds = asked.timeoutSeconds ?? PROBE_TIMEOUT_SECONDS;
    if ('exec' in asked) {
      const limit = ['timeout', String(seconds), ...asked.exec.command];
      return (await this.#podman.exec(this.container(name), limit)).status === 0;
    }
    const { host, port, path } = asked.httpGet;
    const status = await this.ask(`http://${host ?? '127.0.0.1'}:${port}${path}`, { seconds });
    return status !== undefined && status < 400;
  }

  /** The HTTP status of a request from the node, as kubelet sends it; undefined without an answer. */
  async ask(
    address: string,
    { token, seconds = 10 }: { readonly token?: string; readonly seconds?: number } = {},
  ): Promise<number | undefined> {
    const headers = token === undefined ? '{}' : `{ authorization: 'Bearer ${token}' }`;
    const options = `{ headers: ${headers}, signal: AbortSignal.timeout(${seconds * 1000}) }`;
    const script = `fetch('${address}', ${options})
      .then(({ status }) => console.log(status), () => { process.exitCode = 2; });`;
    const { status, stdout } = await this.#podman.world.run([process.execPath, '-e', script]);
    return status === 0 ? Number(stdout) : undefined;
  }

  /** Runs a probe every period until it succeeds. Rejects if it fails too often. */
  async becomeWell(name: string, asked: Probe): Promise<void> {
    const { failureThreshold = FAILURES_MAX, periodSeconds = PERIOD_SECONDS } = asked;
    for (let failures = 0; failures < failureThreshold; failures += 1) {
      if (failures > 0) await quiet(periodSeconds * 1000);
      if (await this.probe(name, asked)) return;
    }
    const said = await this.#podman.logs(this.container(name));
    throw new Error(`${name} failed its probe ${failureThreshold} times: ${said}`);
  }

  /** Removes all containers, starting with those in the namespaces of others. */
  async remove(): Promise<void> {
    await this.#podman.remove(...this.#started);
  }

  async #startOne(each: PodContainer): Promise<void> {
    const name = this.container(each.name);
    const words = [...(each.command ?? []).slice(1), ...(each.args ?? [])];
    const options = { flags: this.#flags(each), words };
    await this.#podman.start(IMAGE, name, options);
    this.#started.unshift(name);
    if (each.startupProbe !== undefined) await this.becomeWell(each.name, each.startupProbe);
  }

  async #runToEnd(each: PodContainer): Promise<void> {
    const words = [...(each.command ?? []).slice(1), ...(each.args ?? [])];
    const options = { flags: this.#flags(each), words, timeoutMs: INIT_TIMEOUT_MS };
    const { status, stdout, stderr } = await this.#podman.run(IMAGE, options);
    if (status !== 0) throw new Error(`${each.name} ended with ${status}: ${stdout}${stderr}`);
  }

  #flags(each: PodContainer): string[] {
    const pod = this.#spec.securityContext ?? {};
    const own = { ...pod, ...each.securityContext };
    const pause = `container:${this.container('pause')}`;
    const flags = [`--network=${pause}`, `--ipc=${pause}`];
    if (this.#spec.shareProcessNamespace === true) flags.push(`--pid=${pause}`);
    if (own.runAsUser !== undefined) flags.push(`--user=${own.runAsUser}:${own.runAsGroup ?? 0}`);
    if (pod.fsGroup !== undefined) flags.push(`--group-add=${pod.fsGroup}`);
    if (own.readOnlyRootFilesystem === true) flags.push('--read-only', '--read-only-tmpfs=false');
    if (own.allowPrivilegeEscalation === false) flags.push('--security-opt=no-new-privileges');
    if (own.seccompProfile?.type !== 'RuntimeDefault') {
      flags.push('--security-opt=seccomp=unconfined');
    }
    for (const one of own.capabilities?.drop ?? []) flags.push(`--cap-drop=${one}`);
    for (const one of own.capabilities?.add ?? []) flags.push(`--cap-add=${one}`);
    for (const { name, value } of each.env ?? []) flags.push(`--env=${name}=${value}`);
    for (const { name, mountPath, readOnly } of each.volumeMounts ?? []) {
      flags.push(`--volume=${this.#place(name)}:${mountPath}${readOnly === true ? ':ro' : ''}`);
    }
    // A command in the manifest also replaces the image's CMD.
    if (each.command !== undefined) flags.push(`--entrypoint=${each.command[0]}`);
    return [...flags, ...(this.#changes.flags?.[each.name] ?? [])];
  }

  /** Where a volume is on the node. */
  #place(name: string): string {
    const volume = (this.#spec.volumes ?? []).find((each) => each.name === name);
    if (volume === undefined) throw new Error(`there is no volume ${name}`);
    if ('hostPath' in volume) return volume.hostPath.path;
    return this.#podman.world.file(`${this.name}-${name}`);
  }

  async #makeVolumes(): Promise<void> {
    const { world } = this.#podman;
    for (const volume of this.#spec.volumes ?? []) {
      const place = this.#place(volume.name);
      if ('emptyDir' in volume) {
        // Like kubelet's: open to all users, with the pod's group.
        const group = this.#spec.securityContext?.fsGroup ?? 0;
        await world.output(['install', '-d', '-m', '2777', '-g', String(group), place]);
      } else if (volume.hostPath.type === 'DirectoryOrCreate') {
        await world.output(['install', '-d', '-m', '0755', place]);
      } else {
        await world.output(['test', '-d', place]);
      }
    }
  }
}
