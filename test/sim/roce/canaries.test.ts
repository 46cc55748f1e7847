/**
 * Bugs that RoCE devices could have, inserted one at a time: a simulation must find each by the
 * rule that it breaks.
 */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { type Canary, type Edit, Mutant } from '../mutant.ts';
import type { RunName } from '../runs.ts';

const SEEDS_MAX = 400;
const MEMORY_SEEDS_MAX = 2000;
const REQUESTER = 'daemon/roce/transport/requester.js';
const RESPONDER = 'daemon/roce/transport/responder.js';
const CM_MESSAGES = 'daemon/roce/cm/message-handlers.js';

/** A bug that takes one edit, or a few. */
type EditCanary = Omit<Canary, 'edits'> & Edit & { readonly more?: readonly Edit[] };

const CANARIES: readonly EditCanary[] = [
  {
    bug: 'a repeated atomic is carried out again',
    rule: 'atomic',
    seed: 1,
    file: RESPONDER,
    find: 'return this.#replies.recall(packet.psn, reply);',
    replace: 'return this.#execute(packet) === 0;',
  },
  {
    bug: 'a repeated request is carried out again',
    rule: 'once',
    seed: 2,
    file: RESPONDER,
    find: 'this.#handleRepeated(packet, -ahead);',
    replace: 'this.#handleExpected(packet, bytes);',
  },
  {
    bug: 'a gap is not noticed',
    rule: 'payload',
    seed: 1,
    file: RESPONDER,
    find: 'this.#handleGap();',
    replace: 'this.#handleExpected(packet, bytes);',
  },
  {
    bug: 'a message is done when it is sent',
    rule: 'acknowledged',
    seed: 1,
    file: REQUESTER,
    find: 'this.#cursor += 1;',
    replace: '{ this.#cursor += 1; if (!message.awaitsResponse) this.#endOldest(); }',
  },
  {
    bug: 'an acknowledgement of later packets completes a Read',
    rule: 'read',
    seed: 8,
    file: REQUESTER,
    find: 'this.#repeat();\n                return false;',
    replace: 'if (message.kind === 4) this.#user.readCompleted(); else return false;',
  },
  {
    bug: 'an acknowledgement without answer is never waited for',
    rule: 'progress',
    seed: 1,
    file: REQUESTER,
    find: 'this.#timers.start(Timer.ack, now + this.#timeoutMicros);',
    replace: '',
  },
  {
    bug: 'an acknowledgement names a packet too many',
    rule: 'acknowledged',
    seed: 2,
    file: RESPONDER,
    find: 'addPsn(this.#expectedPsn, -1)',
    replace: 'this.#expectedPsn',
  },
  {
    bug: 'PSNs do not wrap',
    rule: 'fails',
    seed: 3,
    file: RESPONDER,
    find: 'psnDistance(packet.psn, this.#expectedPsn)',
    replace: 'packet.psn - this.#expectedPsn',
  },
];

/** Bugs that appear when memory is slow or disappears. */
const MEMORY_CANARIES: readonly EditCanary[] = [
  {
    bug: 'a completion does not wait until an agent has copied its data',
    rule: 'payload',
    seed: 8,
    file: 'daemon/rnic/queues/completion-gate.js',
    find: 'this.#writing.size > 0 || this.copying ||',
    replace: 'this.#writing.size > 0 ||',
  },
  {
    bug: 'an agent copies into memory that is no longer registered',
    rule: 'late',
    seed: 1278,
    file: 'daemon/clients/objects/process-backing.js',
    find: 'maker.dropInto(this);',
    replace: ';',
  },
  {
    bug: 'memory is deregistered while a copy into it that has begun is not over',
    rule: 'late',
    seed: 1278,
    file: 'daemon/clients/objects/direct-copies.js',
    find: 'copy.target.incoming.beginEnding();',
    replace: 'copy.receiverWaits = false;',
  },
  {
    bug: 'a packet overtakes payload that an agent has not copied yet',
    rule: 'order',
    seed: 9,
    file: REQUESTER,
    find: 'if (!lends && this.#awaitsCopies())',
    replace: 'if (!this.#open)',
  },
  {
    bug: 'a packet of the same turn overtakes lent payload',
    rule: 'order',
    seed: 9,
    file: 'daemon/rnic/memory/lent-payload.js',
    find: 'lender.lent += 1;\n        return true;',
    replace: 'return true;',
    more: [
      {
        file: 'daemon/rnic/memory/lent-payload.js',
        find: 'lender.lent -= 1;\n            // Otherwise',
        replace: '// Otherwise',
      },
    ],
  },
  {
    bug: 'what is not in its memory yet is acknowledged',
    rule: 'arrived',
    seed: 1,
    file: RESPONDER,
    find: 'if (!placing) {',
    replace: '{',
  },
  {
    bug: 'bytes that were fetched to send a message again serve the next one',
    rule: 'payload',
    seed: 2,
    file: 'daemon/rnic/queues/send-queue.js',
    find: 'if (wqe.awaited)',
    replace: 'if (false)',
  },
  {
    bug: 'packets whose payload is gone are sent',
    rule: 'payload',
    seed: 168,
    file: 'daemon/roce/transport/reliable.js',
    find: 'const refusal = this.#user.gatheringEnded();',
    replace: 'this.#user.gatheringEnded(); const refusal = AccessRefusal.none;',
  },
  {
    bug: 'no waiter is woken when payload has been fetched',
    rule: 'fails',
    seed: 3,
    file: 'daemon/rnic/queue-pair.js',
    find: '#waitForMemory() {\n        this.#host.waiting.add(this);',
    replace: '#waitForMemory() {',
  },
  {
    bug: 'a queue pair in error keeps the shared receive that a message began to fill',
    rule: 'once',
    seed: 375,
    file: 'daemon/rnic/queues/receiver.js',
    find: 'if (queue.active)\n            this.#end(CQEStatus.wrFlushErr);',
    replace: '',
  },
  {
    bug: 'receives that are posted to a queue pair in error stay there',
    rule: 'once',
    seed: 1145,
    file: 'daemon/host/roce/packet-network.js',
    find: 'this.#host.watchErrored();',
    replace: '',
  },
  {
    bug: 'the loss of data after a completion is not noticed',
    rule: 'arrived',
    seed: 12,
    file: 'daemon/rnic/queues/completion-gate.js',
    find: 'this.#writeLost = true;\n            // All that waits is affected.',
    replace: '',
  },
];

/** Bugs of the communication manager that appear when messages are lost, repeated or late. */
const CM_CANARIES: readonly EditCanary[] = [
  {
    bug: 'a repeated request is reported again after its rejection',
    rule: 'once',
    seed: 8,
    file: CM_MESSAGES,
    find: 'core.send(this.#pathBack(arrival), kept);\n            return true;\n        }',
    replace: '}',
  },
  {
    bug: 'the end is not reported when both ends disconnect at once',
    rule: 'end',
    seed: 1,
    file: CM_MESSAGES,
    find: "core.say(connection, 'DREP', {});\n                core.enterTimewait(connection, now);\n                core.report({ type: 'disconnected', connection, timedOut: false });",
    replace:
      "core.say(connection, 'DREP', {});\n                core.enterTimewait(connection, now);",
  },
  {
    bug: 'a DREQ of a connection that is over is not answered',
    rule: 'patience',
    seed: 7,
    file: CM_MESSAGES,
    find: "const mad = writeCmMessage('DREP', transaction, { localCommId, remoteCommId });\n            core.send(this.#pathBack(arrival), mad);",
    replace: ';',
  },
  {
    bug: 'an MRA grants no time',
    rule: 'patience',
    seed: 5,
    file: CM_MESSAGES,
    find: 'connection.resendMicros = micros;',
    replace: ';',
  },
  {
    bug: 'an answer of a service may come twice',
    rule: 'once',
    seed: 1,
    file: CM_MESSAGES,
    find: 'core.forget(connection);\n        const { status, qpn, qkey, privateData } = fields;',
    replace: 'const { status, qpn, qkey, privateData } = fields;',
  },
  {
    bug: 'each MRA grants more time',
    rule: 'patience',
    seed: 2,
    file: CM_MESSAGES,
    find: "if (known && state === (toReq ? 'mra-req-rcvd' : 'mra-rep-rcvd')) {",
    replace:
      "if (known && state === (toReq ? 'mra-req-rcvd' : 'mra-rep-rcvd')) {\n" +
      '            core.extend(connection, MRA_MAX_MICROS, now);',
  },
  {
    bug: 'a REJ does not end a disconnect',
    rule: 'patience',
    seed: 2,
    file: CM_MESSAGES,
    find: "case 'dreq-sent':\n                // The peer has forgotten",
    replace: "case 'none':\n                // The peer has forgotten",
  },
];

/** Bugs that appear when one packet stands for several. */
const WHOLE_CANARIES: readonly EditCanary[] = [
  {
    bug: 'the rest of a packet that the receiver has in part is not asked for',
    rule: 'fails',
    seed: 19,
    file: RESPONDER,
    find: 'this.#askForRest();',
    replace: ';',
  },
];

let mutant: Mutant;

beforeAll(() => {
  mutant = new Mutant();
});

afterAll(() => mutant.remove());

const SUITES: readonly (readonly [string, RunName, readonly EditCanary[], number])[] = [
  ['the transport', 'transports', CANARIES, SEEDS_MAX],
  ['memory', 'memory', MEMORY_CANARIES, MEMORY_SEEDS_MAX],
  ['connections', 'connections', CM_CANARIES, SEEDS_MAX],
  ['whole messages', 'whole', WHOLE_CANARIES, SEEDS_MAX],
];

for (const [what, run, canaries, most] of SUITES) {
  describe(`canaries of ${what}`, () => {
    for (const canary of canaries) {
      it(`finds the bug: ${canary.bug}`, async () => {
        const edits = [canary, ...(canary.more ?? [])];
        await mutant.expectFound({ ...canary, edits }, run, most);
      });
    }
  });
}
