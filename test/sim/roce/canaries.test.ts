/**
 * Bugs that RoCE devices could have, inserted one at a time: a simulation must find each by the
 * rule that it breaks.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Edit } from '../canaries.ts';
import { Mutant } from '../mutant.ts';

const SEEDS_MAX = 400;
const MEMORY_SEEDS_MAX = 1000;
const REQUESTER = 'daemon/roce/transport/requester.js';
const RESPONDER = 'daemon/roce/transport/responder.js';
const CM_MESSAGES = 'daemon/roce/cm/message-handlers.js';

interface Canary extends Edit {
  readonly bug: string;
  readonly rule: string;
}

const CANARIES: readonly Canary[] = [
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
    bug: 'an acknowledgement of later packets completes a Read',
    rule: 'read',
    file: REQUESTER,
    find: 'this.#repeat();\n                return false;',
    replace: 'if (message.kind === 4) this.#user.readCompleted(); else return false;',
  },
  {
    bug: 'an acknowledgement without answer is never waited for',
    rule: 'progress',
    file: REQUESTER,
    find: 'this.#timers.start(Timer.ack, now + this.#timeoutMicros);',
    replace: '',
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

/** Bugs that appear when memory is slow or disappears. */
const MEMORY_CANARIES: readonly Canary[] = [
  {
    bug: 'what is not in its memory yet is acknowledged',
    rule: 'arrived',
    file: RESPONDER,
    find: 'if (!this.#user.placing)',
    replace: '',
  },
  {
    bug: 'bytes that were fetched to send a message again serve the next one',
    rule: 'payload',
    file: 'daemon/rnic/queues/send-queue.js',
    find: 'if (wqe.awaited)',
    replace: 'if (false)',
  },
  {
    bug: 'packets whose payload is gone are sent',
    rule: 'payload',
    file: 'daemon/roce/transport/reliable.js',
    find: 'const refusal = this.#user.gatheringEnded();',
    replace: 'this.#user.gatheringEnded(); const refusal = AccessRefusal.none;',
  },
  {
    bug: 'no waiter is woken when payload has been fetched',
    rule: 'fails',
    file: 'daemon/rnic/queue-pair.js',
    find: '#waitForMemory() {\n        this.#host.waiting.add(this);',
    replace: '#waitForMemory() {',
  },
  {
    bug: 'a queue pair in error keeps the shared receive that a message began to fill',
    rule: 'once',
    file: 'daemon/rnic/queues/receiver.js',
    find: 'if (queue.active)\n            this.#end(CQEStatus.wrFlushErr);',
    replace: '',
  },
  {
    bug: 'receives that are posted to a queue pair in error stay there',
    rule: 'once',
    file: 'daemon/host/roce/packet-network.js',
    find: 'this.#host.watchErrored();',
    replace: '',
  },
  {
    bug: 'the loss of data after a completion is not noticed',
    rule: 'arrived',
    file: 'daemon/rnic/queues/completion-gate.js',
    find: 'if (backing.writeLost === true)\n                this.#writeLost = true;',
    replace: '',
  },
];

/** Bugs of the communication manager that appear when messages are lost, repeated or late. */
const CM_CANARIES: readonly Canary[] = [
  {
    bug: 'a repeated request is reported again after its rejection',
    rule: 'once',
    file: CM_MESSAGES,
    find: 'core.send(this.#pathBack(arrival), kept);\n            return true;\n        }',
    replace: '}',
  },
  {
    bug: 'the end is not reported when both ends disconnect at once',
    rule: 'end',
    file: CM_MESSAGES,
    find: "core.say(connection, 'DREP', {});\n                core.enterTimewait(connection, now);\n                core.report({ type: 'disconnected', connection, timedOut: false });",
    replace:
      "core.say(connection, 'DREP', {});\n                core.enterTimewait(connection, now);",
  },
  {
    bug: 'a DREQ of a connection that is over is not answered',
    rule: 'patience',
    file: CM_MESSAGES,
    find: "const mad = writeCmMessage('DREP', transaction, { localCommId, remoteCommId });\n            core.send(this.#pathBack(arrival), mad);",
    replace: ';',
  },
  {
    bug: 'an MRA grants no time',
    rule: 'patience',
    file: CM_MESSAGES,
    find: 'connection.resendMicros = micros;',
    replace: ';',
  },
  {
    bug: 'an answer of a service may come twice',
    rule: 'once',
    file: CM_MESSAGES,
    find: 'core.forget(connection);\n        const { status, qpn, qkey, privateData } = fields;',
    replace: 'const { status, qpn, qkey, privateData } = fields;',
  },
];

let mutant: Mutant;

beforeAll(() => {
  mutant = new Mutant();
});

afterAll(() => mutant.remove());

describe('canaries of the transport', () => {
  for (const { bug, rule, file, find, replace } of CANARIES) {
    it(`finds the bug: ${bug}`, async () => {
      const edits = [{ file, find, replace }];
      const seed = await mutant.find(edits, 'test/sim/roce/canary-run.js', rule, SEEDS_MAX);
      expect(seed, `a seed up to ${SEEDS_MAX} that breaks '${rule}'`).toBeGreaterThan(0);
    });
  }
});

describe('canaries of memory', () => {
  for (const { bug, rule, file, find, replace } of MEMORY_CANARIES) {
    it(`finds the bug: ${bug}`, async () => {
      const edits = [{ file, find, replace }];
      const [script, most] = ['test/sim/roce/canary-run.js', MEMORY_SEEDS_MAX];
      const seed = await mutant.find(edits, script, rule, most, ['memory']);
      expect(seed, `a seed up to ${most} that breaks '${rule}'`).toBeGreaterThan(0);
    });
  }
});

describe('canaries of connections', () => {
  for (const { bug, rule, file, find, replace } of CM_CANARIES) {
    it(`finds the bug: ${bug}`, async () => {
      const edits = [{ file, find, replace }];
      const [script, most] = ['test/sim/roce/canary-run.js', SEEDS_MAX];
      const seed = await mutant.find(edits, script, rule, most, ['connections']);
      expect(seed, `a seed up to ${most} that breaks '${rule}'`).toBeGreaterThan(0);
    });
  }
});
