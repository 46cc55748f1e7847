/**
 * Kubernetes manifests as values: the part of the API that the examples use, and nothing else.
 *
 * An API server ignores a field that it does not know, with a warning at most. Here a field that is
 * not listed is an error, so a typo cannot pass for a setting. The names and types
 * are those of the API of Kubernetes 1.29 and later (core/v1, apps/v1).
 */
import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';

/** RFC 1123 labels: the form of object and container names. */
const name = z.string().regex(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/);
const absolutePath = z.string().startsWith('/');
const port = z.int().min(1).max(65_535);
const id = z.int().min(0);
const words = z.array(z.string()).nonempty();
const labels = z.record(z.string(), z.string());

const seccompProfile = z.strictObject({ type: z.enum(['RuntimeDefault', 'Unconfined']) });

const securityContext = z.strictObject({
  runAsNonRoot: z.boolean().optional(),
  runAsUser: id.optional(),
  runAsGroup: id.optional(),
  allowPrivilegeEscalation: z.boolean().optional(),
  readOnlyRootFilesystem: z.boolean().optional(),
  capabilities: z
    .strictObject({
      drop: z.array(z.string()).optional(),
      add: z.array(z.string().regex(/^[A-Z_]+$/)).optional(),
    })
    .optional(),
  seccompProfile: seccompProfile.optional(),
});

const probeTimes = {
  initialDelaySeconds: id.optional(),
  periodSeconds: z.int().min(1).optional(),
  timeoutSeconds: z.int().min(1).optional(),
  failureThreshold: z.int().min(1).optional(),
};
const probe = z.union([
  z.strictObject({ exec: z.strictObject({ command: words }), ...probeTimes }),
  z.strictObject({
    httpGet: z.strictObject({ host: z.string().optional(), port, path: absolutePath }),
    ...probeTimes,
  }),
]);

const quantities = z.strictObject({
  cpu: z
    .string()
    .regex(/^\d+m?$/)
    .optional(),
  memory: z
    .string()
    .regex(/^\d+(Ki|Mi|Gi)$/)
    .optional(),
});

const container = z.strictObject({
  name,
  image: z.string().min(1),
  imagePullPolicy: z.enum(['Always', 'IfNotPresent', 'Never']).optional(),
  command: words.optional(),
  args: words.optional(),
  env: z.array(z.strictObject({ name: z.string().min(1), value: z.string() })).optional(),
  startupProbe: probe.optional(),
  readinessProbe: probe.optional(),
  livenessProbe: probe.optional(),
  securityContext: securityContext.optional(),
  resources: z
    .strictObject({ requests: quantities.optional(), limits: quantities.optional() })
    .optional(),
  volumeMounts: z
    .array(z.strictObject({ name, mountPath: absolutePath, readOnly: z.boolean().optional() }))
    .optional(),
});

const volume = z.union([
  z.strictObject({ name, emptyDir: z.strictObject({}) }),
  z.strictObject({
    name,
    hostPath: z.strictObject({
      path: absolutePath,
      type: z.enum(['Directory', 'DirectoryOrCreate']),
    }),
  }),
]);

const podSpec = z.strictObject({
  hostNetwork: z.boolean().optional(),
  shareProcessNamespace: z.boolean().optional(),
  restartPolicy: z.enum(['Always', 'OnFailure', 'Never']).optional(),
  automountServiceAccountToken: z.boolean().optional(),
  securityContext: z
    .strictObject({
      runAsNonRoot: z.boolean().optional(),
      runAsUser: id.optional(),
      runAsGroup: id.optional(),
      fsGroup: id.optional(),
      seccompProfile: seccompProfile.optional(),
    })
    .optional(),
  initContainers: z
    .array(z.strictObject({ ...container.shape, restartPolicy: z.literal('Always').optional() }))
    .optional(),
  containers: z.tuple([container], container),
  volumes: z.array(volume).optional(),
});

const manifest = z.discriminatedUnion('kind', [
  z.strictObject({
    apiVersion: z.literal('v1'),
    kind: z.literal('Pod'),
    metadata: z.strictObject({ name, labels: labels.optional() }),
    spec: podSpec,
  }),
  z.strictObject({
    apiVersion: z.literal('apps/v1'),
    kind: z.literal('DaemonSet'),
    metadata: z.strictObject({ name, labels: labels.optional() }),
    spec: z.strictObject({
      selector: z.strictObject({ matchLabels: labels }),
      template: z.strictObject({ metadata: z.strictObject({ labels }), spec: podSpec }),
    }),
  }),
]);

/** A manifest of a Pod or a DaemonSet. */
type Manifest = z.infer<typeof manifest>;
export type PodSpec = z.infer<typeof podSpec>;
/** A container of a pod, before or beside the others. */
export type PodContainer = NonNullable<PodSpec['initContainers']>[number];
/** A probe of a container's state. */
export type Probe = z.infer<typeof probe>;

/** The one manifest in a file; throws with the field that is wrong. */
export function readManifest(file: string): Manifest {
  return parseManifest(readFileSync(file, 'utf8'));
}

/** The one manifest in a text; throws with the field that is wrong. */
export function parseManifest(text: string): Manifest {
  const [document, ...others] = parseAllDocuments(text);
  if (document === undefined || others.length > 0) throw new Error('not exactly one document');
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined) throw problem;
  const parsed = manifest.safeParse(document.toJS());
  if (parsed.success) return parsed.data;
  throw new Error(z.prettifyError(parsed.error));
}

/** The pod in a manifest, or in its template. */
export function podOf(manifest: Manifest): PodSpec {
  return manifest.kind === 'Pod' ? manifest.spec : manifest.spec.template.spec;
}

/** All containers of a pod, in the order in which they start. */
export function containersOf(pod: PodSpec): PodContainer[] {
  return [...(pod.initContainers ?? []), ...pod.containers];
}

/** Contradictions in a manifest that types do not catch: a line each. */
export function contradictions(manifest: Manifest): string[] {
  const pod = podOf(manifest);
  const found: string[] = [];
  if (manifest.kind === 'DaemonSet') {
    const given = manifest.spec.template.metadata.labels;
    for (const [key, value] of Object.entries(manifest.spec.selector.matchLabels)) {
      if (given[key] !== value) found.push(`the template has no label ${key}: ${value}`);
    }
    // An API server refuses any other policy for a DaemonSet.
    if ((pod.restartPolicy ?? 'Always') !== 'Always') found.push('a DaemonSet restarts always');
  }
  const declared = (pod.volumes ?? []).map((each) => each.name);
  const all = containersOf(pod);
  const mounted = all.flatMap((each) => (each.volumeMounts ?? []).map((mount) => mount.name));
  for (const each of mounted) if (!declared.includes(each)) found.push(`no volume ${each}`);
  for (const each of declared) if (!mounted.includes(each)) found.push(`${each} is not mounted`);
  const names = all.map((each) => each.name);
  if (new Set(names).size < names.length) found.push('two containers of one name');
  for (const each of all) found.push(...containerContradictions(pod, each));
  return found;
}

function containerContradictions(pod: PodSpec, each: PodContainer): string[] {
  const found: string[] = [];
  const { runAsNonRoot, runAsUser } = { ...pod.securityContext, ...each.securityContext };
  if (runAsNonRoot === true && runAsUser === 0) found.push(`${each.name} is root, and must not be`);
  const isSidecar = each.restartPolicy === 'Always' || pod.containers.includes(each);
  for (const asked of [each.startupProbe, each.readinessProbe, each.livenessProbe]) {
    if (asked === undefined) continue;
    if (!isSidecar) found.push(`${each.name} ends before the others start, and has a probe`);
    if (!('httpGet' in asked)) continue;
    const { host = 'the pod', port: wanted } = asked.httpGet;
    if (!(each.args ?? []).includes(`${host}:${wanted}`)) {
      found.push(`${each.name} is probed at ${host}:${wanted}, but does not listen there`);
    }
    if (host === '127.0.0.1' && pod.hostNetwork !== true) {
      found.push(`${each.name} is probed at the node's loopback, and not on the node's network`);
    }
  }
  return found;
}

/**
 * Reasons that keep a pod out of a namespace with the "restricted" Pod Security Standard, a line each:
 * https://kubernetes.io/docs/concepts/security/pod-security-standards/
 */
export function restrictedObstacles(pod: PodSpec): string[] {
  const found: string[] = [];
  if (pod.hostNetwork === true) found.push('hostNetwork');
  for (const each of pod.volumes ?? []) if ('hostPath' in each) found.push(`hostPath ${each.name}`);
  for (const each of containersOf(pod)) {
    const context = { ...pod.securityContext, ...each.securityContext };
    if (context.allowPrivilegeEscalation !== false) found.push(`${each.name} may gain privileges`);
    if (context.runAsNonRoot !== true) found.push(`${each.name} may be root`);
    if (context.capabilities?.drop?.includes('ALL') !== true) {
      found.push(`${each.name} keeps capabilities`);
    }
    const added = (context.capabilities?.add ?? []).filter((one) => one !== 'NET_BIND_SERVICE');
    if (added.length > 0) found.push(`${each.name} adds ${added.join(', ')}`);
    if (context.seccompProfile?.type !== 'RuntimeDefault') found.push(`${each.name}: seccomp`);
  }
  return found;
}
