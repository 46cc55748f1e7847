/** The output of `iwarpd status --json`, read from inside a container. */
import { z } from 'zod';
import { until } from '#test/support/patience';
import type { Podman } from './podman.ts';

const status = z.object({
  devices: z.array(
    z.object({
      device: z.object({ name: z.string() }),
      counters: z.record(z.string(), z.number()),
    }),
  ),
  clients: z.array(
    z.object({
      pid: z.number(),
      uid: z.number(),
      program: z.string(),
      usage: z.object({
        tiers: z.record(z.string(), z.number()),
        tierReasons: z.record(z.string(), z.string()),
      }),
    }),
  ),
});

/** The fields of a daemon's status that depend on containers. */
export type Status = z.infer<typeof status>;

/** Asks the daemon of a container. */
export async function statusOf(podman: Podman, container: string): Promise<Status> {
  const { stdout, stderr } = await podman.exec(container, ['iwarpd', 'status', '--json']);
  if (stdout === '') throw new Error(`no status of ${container}: ${stderr}`);
  return status.parse(JSON.parse(stdout));
}

/** Waits until `look` finds something, and returns it; throws with `what` when it does not. */
export async function eventually<Found>(
  what: string,
  look: () => Promise<Found | undefined>,
): Promise<Found> {
  let found: Found | undefined;
  await until(what, async () => {
    found = await look();
    return found !== undefined;
  });
  return found as Found;
}

/** The tier by which a container's daemon reaches the memory of a program with one region. */
export function tierInUse(
  podman: Podman,
  daemon: string,
): Promise<{ readonly tier: string; readonly reason: string }> {
  return eventually(`a memory region at ${daemon}`, async () => {
    const { clients } = await statusOf(podman, daemon);
    for (const { usage } of clients) {
      const [tier] = Object.keys(usage.tiers);
      if (tier !== undefined) return { tier, reason: usage.tierReasons[tier] ?? '' };
    }
    return undefined;
  });
}

/** Waits until the daemon of a container is ready. */
export async function becomesReady(podman: Podman, container: string): Promise<void> {
  const wait = ['iwarpd', 'wait', '--ready', '--timeout', '30'];
  const { status, stderr } = await podman.exec(container, wait);
  if (status !== 0) throw new Error(`${container}: ${stderr}${await podman.logs(container)}`);
}
