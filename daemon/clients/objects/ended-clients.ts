/** Clients that ended while they held objects, for the report of the next reset. */
import { ENDED_HOLDING_MAX, type EndedHolding } from '#contract/protocol/control';

/**
 * A program closes its devices when it exits, and librdmacm keeps them open until then: an open
 * device or event channel alone is no leak.
 */
const KEPT_TO_THE_END: ReadonlySet<string> = new Set(['context', 'channel']);

export class EndedClients {
  readonly #ended: EndedHolding[] = [];
  readonly #now: () => string;

  /** `now` returns the time as ISO 8601. */
  constructor(now: () => string) {
    this.#now = now;
  }

  /** Records the end of a client, or of one of its files. Ignores ends that left nothing. */
  note(client: Omit<EndedHolding, 'at'>): void {
    const held = Object.entries(client.objects).filter(([, count]) => count > 0);
    if (held.every(([kind]) => KEPT_TO_THE_END.has(kind))) return;
    const before = this.#ended.findIndex(({ id }) => id === client.id);
    const [earlier] = before < 0 ? [] : this.#ended.splice(before, 1);
    const objects: Record<string, number> = { ...earlier?.objects };
    for (const [kind, count] of held) objects[kind] = (objects[kind] ?? 0) + count;
    const { id, pid, uid, program } = client;
    this.#ended.push({ id, pid, uid, program, at: this.#now(), objects });
    if (this.#ended.length > ENDED_HOLDING_MAX) this.#ended.shift();
  }

  take(): EndedHolding[] {
    return this.#ended.splice(0);
  }
}
