/** The rules of a run. A canary expects the name of the broken rule. */

/** Rules by name. */
const RULES = {
  payload: 'messages arrive whole and unchanged',
  order: 'messages arrive in the order of posting, each once',
  placed: 'a success is reported only when the data before it are in place',
  once: 'each work request completes exactly once, in the order of posting',
  quiet: 'nothing fails without a cause',
  arrived: 'a peer that saw a graceful end has everything that completed with success',
  stopped: 'nothing posted after a disconnect is sent',
  window: 'a type 2 window ends with its stream',
  reported: 'an error of the peer is reported when it is found',
  ends: 'a disconnect completes in time, whatever the peer sends',
  progress: 'work on a healthy connection completes',
  outcome: 'each connect has one outcome, and each connection one end',
  events: 'no event follows a destruction',
  private: 'private data arrives unchanged',
  agree: 'queue pair, endpoint, conduit and link agree',
  left: 'nothing is left at the end',
  bounded: 'memory stays within its bounds',
  wake: 'an armed completion queue wakes its owner',
  refused: 'a command is refused only for a reason',
  // Over RoCE:
  atomic: 'each atomic is carried out exactly once',
  late: 'memory is not written after the work that named it has completed',
  moment: 'a Read returns what was there at some moment between its post and its completion',
  drained: 'a drained send queue has completed what it had sent',
  datagram: 'a datagram arrives whole and where it was sent to',
  lossy:
    'a Write over UC places its own bytes from the first on, and all before it completes a receive',
  limit: 'a shared receive queue reports its limit once for each request',
  alone: 'a listener shares its addresses and port with no one, and alone gets its requests',
  share: 'one turn carries out at most a share of the requests of a user',
  counted: 'counters of ports agree with the network',
} as const;
export type Rule = keyof typeof RULES;

/** A broken rule ends the run. */
export class BrokenRule extends Error {
  override readonly name = 'BrokenRule';
  readonly rule: Rule;

  constructor(rule: Rule, detail: string) {
    super(`${rule}: ${RULES[rule]}; ${detail}`);
    this.rule = rule;
  }
}

/** Ends the run unless `holds`. */
export function must(holds: boolean, rule: Rule, detail: string | (() => string)): asserts holds {
  if (!holds) throw new BrokenRule(rule, typeof detail === 'string' ? detail : detail());
}
