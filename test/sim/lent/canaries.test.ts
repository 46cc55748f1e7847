/** Bugs that lending could have, inserted one at a time: the simulation must find each by the rule that it breaks. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { type Canary, Mutant } from '../mutant.ts';

const SEEDS_MAX = 1500;
const SENDER = 'daemon/iwarp/engine/rdmap-sender.js';
const STREAM = 'daemon/rnic/memory/lent-stream.js';
const LENDING = 'daemon/rnic/queues/lending.js';
const LINK = 'daemon/host/links/memory-link.js';

const CANARIES: readonly Canary[] = [
  {
    bug: 'anything may overtake lent payload',
    rule: 'order',
    seed: 1,
    edits: [
      {
        file: SENDER,
        find: 'this.#user.awaitCopies?.();\n        return true;',
        replace: 'return false;',
      },
    ],
  },
  {
    bug: 'Reads and atomics overtake lent payload',
    rule: 'payload',
    seed: 2,
    edits: [
      {
        file: SENDER,
        find: '(isRequest || kind === OutboundKind.immediate) && this.#awaitsCopies()',
        replace: 'false',
      },
    ],
  },
  {
    bug: 'payload that was fetched into the output overtakes copies',
    rule: 'order',
    seed: 6,
    edits: [
      {
        file: STREAM,
        find: 'this.#recalled = this.#copying > 0;',
        replace: 'this.#recalled = false;',
      },
    ],
  },
  {
    bug: 'a message completes while its payload is lent',
    rule: 'payload',
    seed: 2,
    edits: [
      { file: LENDING, find: 'if (this.framed === 0 && message.lent === 0)', replace: 'if (true)' },
    ],
  },
  {
    bug: 'a capture, a fault or other memory gets bytes that stand for others',
    rule: 'payload',
    seed: 24,
    edits: [
      {
        file: LINK,
        find: 'if (!this.lends || held > 0)\n            lent.recall();',
        replace: '',
      },
    ],
  },
  {
    bug: 'a connection ends while agents still copy into memory',
    rule: 'late',
    seed: 1,
    edits: [
      {
        file: 'daemon/iwarp/cm/endpoint.js',
        find: 'if (this.qp === undefined)',
        replace: 'if (true)',
      },
    ],
  },
  {
    bug: 'a queue pair reports its failure while agents still copy into memory',
    rule: 'late',
    seed: 18,
    edits: [
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: 'if (this.#gate.placing)',
        replace: 'if (false)',
      },
    ],
  },
  {
    bug: 'flushed work completes while agents still copy from its memory',
    rule: 'payload',
    seed: 35,
    edits: [
      {
        file: LENDING,
        find: 'this.#copier?.hasten(loans);\n            this.#gate.awaitLent(loans);',
        replace: '',
      },
    ],
  },
  {
    bug: 'output after payload that could not be read is delivered',
    rule: 'order',
    seed: 1200,
    edits: [{ file: LINK, find: 'if (lent.failed) {', replace: 'if (false) {' }],
  },
  {
    bug: 'a link copies bytes that stand for others',
    rule: 'payload',
    seed: 1,
    edits: [
      { file: LINK, find: 'if (lent === undefined && this.#copy', replace: 'if (this.#copy' },
    ],
  },
  {
    bug: 'a program that moves its queue pair to ERR gets copies afterwards',
    rule: 'late',
    seed: 22,
    edits: [
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: 'if (!this.#closing)\n            this.#gate.conclude();',
        replace: '',
      },
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: 'if (!this.receiving)\n            this.#gate.conclude();',
        replace: '',
      },
    ],
  },
  {
    bug: 'nothing continues what waited for lent payload',
    rule: 'progress',
    seed: 147,
    edits: [
      {
        file: 'daemon/rnic/queue-pair.js',
        find: 'awaitCopies() {\n        this.#host.waiting.add(this);',
        replace: 'awaitCopies() {',
      },
    ],
  },
];

let mutant: Mutant;

beforeAll(() => {
  mutant = new Mutant();
});

afterAll(() => mutant.remove());

describe('canaries of lent payload', () => {
  for (const canary of CANARIES) {
    it(`finds the bug: ${canary.bug}`, () => mutant.expectFound(canary, 'lent', SEEDS_MAX));
  }
});
