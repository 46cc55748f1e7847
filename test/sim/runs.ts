/** Every kind of run, by name: whole hosts over each network, and smaller simulations. */

/** Runs a seed. Throws or rejects with `BrokenRule` or `BrokenRoceRule` if a rule is broken. */
type Run = (seed: number) => unknown;

/** Longer than any message of two transports. */
const WHOLE_BYTES = 65_536;

/** Each loads only its own modules: a process that looks for a canary runs few seeds. */
const RUNS = {
  tcp: async () => {
    const { run } = await import('./run.ts');
    return (seed: number) => run(seed, 'tcp');
  },
  sctp: async () => {
    const { run } = await import('./run.ts');
    return (seed: number) => run(seed, 'sctp');
  },
  roce: async () => (await import('./packets/packet-run.ts')).runPackets,
  transports: async () => (await import('./roce/transport-run.ts')).runTransports,
  whole: async () => {
    const { runTransports } = await import('./roce/transport-run.ts');
    return (seed: number): unknown => runTransports(seed, WHOLE_BYTES);
  },
  memory: async () => (await import('./roce/memory-run.ts')).runMemory,
  lent: async () => (await import('./lent/lent-run.ts')).runLent,
  connections: async () => (await import('./roce/connections-run.ts')).runConnections,
} as const;
export type RunName = keyof typeof RUNS;

export async function loadRun(name: string): Promise<Run> {
  const load: (() => Promise<Run>) | undefined = RUNS[name as RunName];
  if (load === undefined) throw new RangeError(`no run '${name}'`);
  const run = await load();
  return (seed) => run(seed);
}
