/** Bugs that a transport may well have, one at a time: the simulation must find each by its rule. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Edit } from '../canaries.ts';
import { Mutant } from '../mutant.ts';

const SEEDS_MAX = 400;
const TIMEOUT_MS = 300_000;
const REQUESTER = 'daemon/roce/transport/requester.js';
const RESPONDER = 'daemon/roce/transport/responder.js';

const CANARIES: readonly (Edit & { readonly bug: string; readonly rule: string })[] = [
  {
    bug: 'a repeated atomic is carried out again',
    rule: 'atomic',
    file: RESPONDER,
    find: 'return this.#replies.recall(packet.psn, reply);',
    replace: 'return this.#execute(packet) === 0;',
  },
  {
    bug: 'a repeated request is carried out again',
    rule: 'once',
    file: RESPONDER,
    find: 'this.#handleRepeated(packet, -ahead);',
    replace: 'this.#handleExpected(packet, bytes);',
  },
  {
    bug: 'a gap is not noticed',
    rule: 'payload',
    file: RESPONDER,
    find: 'this.#handleGap();',
    replace: 'this.#handleExpected(packet, bytes);',
  },
  {
    bug: 'a message is done when it is sent',
    rule: 'acknowledged',
    file: REQUESTER,
    find: 'this.#cursor += 1;',
    replace: '{ this.#cursor += 1; if (!message.awaitsResponse) this.#endOldest(); }',
  },
  {
    bug: 'an acknowledgement behind a Read completes it',
    rule: 'read',
    file: REQUESTER,
    find: 'this.#repeat();\n                return false;',
    replace: 'if (message.kind === 4) this.#user.readCompleted(); else return false;',
  },
  {
    bug: 'an acknowledgement without answer is never waited for',
    rule: 'progress',
    file: REQUESTER,
    find: 'this.#ackDeadline = now + this.#timeoutMicros;',
    replace: ';',
  },
  {
    bug: 'an acknowledgement names a packet too many',
    rule: 'acknowledged',
    file: RESPONDER,
    find: 'addPsn(this.#expectedPsn, -1)',
    replace: 'this.#expectedPsn',
  },
  {
    bug: 'PSNs do not wrap',
    rule: 'fails',
    file: RESPONDER,
    find: 'psnDistance(packet.psn, this.#expectedPsn)',
    replace: 'packet.psn - this.#expectedPsn',
  },
];

let mutant: Mutant;

beforeAll(() => {
  mutant = new Mutant();
}, TIMEOUT_MS);

afterAll(() => mutant.remove());

describe('canaries of the transport', () => {
  for (const { bug, rule, file, find, replace } of CANARIES) {
    it(`finds the bug: ${bug}`, { timeout: TIMEOUT_MS }, async () => {
      const edits = [{ file, find, replace }];
      const seed = await mutant.find(edits, 'test/sim/roce/canary-run.js', rule, SEEDS_MAX);
      expect(seed, `a seed up to ${SEEDS_MAX} that breaks '${rule}'`).toBeGreaterThan(0);
    });
  }
});
