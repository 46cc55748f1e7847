/**
 * Bugs that iwarpd once had or, over SCTP, could have, as edits of its compiled code. A simulation that misses them proves
 * nothing. Each `find` text must occur exactly once in its file: when the code around it changes,
 * the canary fails instead of falling silent.
 */
import type { Canary } from './mutant.ts';
import type { SimulatedOver } from './over.ts';
import type { Rule } from './rules.ts';

/** A bug of whole hosts. */
export interface HostCanary extends Canary {
  readonly rule: Rule;
  /** Default: TCP. */
  readonly over?: SimulatedOver;
}

export const CANARIES: readonly HostCanary[] = [
  {
    bug: 'a disconnect does not stop the send queue',
    rule: 'stopped',
    seed: 69,
    edits: [
      { file: 'daemon/iwarp/cm/endpoint.js', find: 'this.qp?.disconnecting(now);', replace: '' },
    ],
  },
  {
    bug: 'a clean FIN drops Sends that completed but were not yet written',
    rule: 'arrived',
    seed: 49,
    edits: [
      {
        file: 'daemon/host/conduit.js',
        find: '#linger(now) {\n        this.#closesAfterOutput = true;',
        replace: '#linger(now) { this.#link.finish();\n        this.#closesAfterOutput = true;',
      },
    ],
  },
  {
    bug: 'a work request completes with success although its data were never placed',
    rule: 'placed',
    seed: 78,
    edits: [
      {
        file: 'daemon/rnic/queues/completion-gate.js',
        find: 'return kind === undefined ? undefined : { index, kind };',
        replace: 'return undefined;',
      },
    ],
  },
  {
    bug: 'a type 2 window outlives its stream',
    rule: 'window',
    seed: 7,
    edits: [
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: 'for (const mw of this.#qp.ownWindows)\n                mw.invalidate();',
        replace: ';',
      },
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: "assert(receiving || ownWindows.size === 0, 'type 2 windows outlive the stream of their QP');",
        replace: ';',
      },
    ],
  },
  {
    bug: 'an error is reported to the consumer only when the Terminate is framed',
    rule: 'reported',
    seed: 177,
    edits: [
      {
        file: 'daemon/iwarp/engine/stream.js',
        find: "this.#announceTerminate(operation);\n        this.#close('terminating', now);",
        replace: "this.#close('terminating', now);",
      },
      {
        file: 'daemon/iwarp/engine/stream.js',
        find: "if (this.#state === 'terminating' && operation.terminateFramed)\n",
        replace:
          "if (this.#state === 'terminating' && operation.terminateFramed) this.#announceTerminate(operation);\n" +
          "        if (this.#state === 'terminating' && operation.terminateFramed)\n",
      },
    ],
  },
  {
    bug: 'any inbound byte restarts the close timeout',
    rule: 'ends',
    seed: 268,
    edits: [
      {
        file: 'daemon/iwarp/engine/stream.js',
        find: 'this.#receive(bytes, start, delivery);\n        this.#advance(now);',
        replace:
          "this.#receive(bytes, start, delivery); if (this.#state === 'draining') this.#renewDeadline(now);\n" +
          '        this.#advance(now);',
      },
    ],
  },
  {
    bug: 'a queue pair that is gone waits for an agent that may never answer',
    rule: 'bounded',
    seed: 60,
    edits: [{ file: 'daemon/rnic/nic.js', find: 'this.#host.waiting.delete(qp);', replace: '' }],
  },
  {
    bug: 'a memory link accepts a large write, and its stream uses the chunk again',
    rule: 'quiet',
    seed: 68,
    edits: [
      {
        file: 'daemon/host/links/memory-link.js',
        find: 'this.#leftUnsealed = unsealed;\n        return 0;',
        replace: 'this.#leftUnsealed = unsealed;\n        return bytes.length;',
      },
      {
        file: 'daemon/host/links/memory-link.js',
        find: 'this.user.handleFlushed(left.length);',
        replace: '',
      },
    ],
  },
  {
    bug: 'what a memory link carries without CRCs is not sealed for a fault that cuts it',
    rule: 'quiet',
    seed: 32,
    edits: [
      {
        file: 'daemon/host/links/memory-link.js',
        find: 'if (unsealed && !bare)\n            this.user.seal?.(bytes);',
        replace: '',
      },
      {
        file: 'daemon/host/links/faulty-link.js',
        find: 'if (unsealed)\n            this.seal(bytes);',
        replace: '',
      },
    ],
  },
  {
    bug: 'messages of SCTP are delivered as they arrive, whatever their DDP-SSN',
    rule: 'quiet',
    over: 'sctp',
    seed: 1,
    edits: [
      {
        file: 'daemon/iwarp/sctp/sequencer.js',
        find: "if (ahead === 0)\n            return this.#held.has(ssn) ? 'repeated' : 'due';",
        replace: "if (ahead >= 0) return 'due';",
      },
    ],
  },
  {
    bug: 'the Terminate of a session over SCTP is never sent',
    rule: 'quiet',
    over: 'sctp',
    seed: 156,
    edits: [
      {
        file: 'daemon/iwarp/sctp/session.js',
        find: 'this.#send(TERMINATE);',
        replace: 'this.#unproven = false;',
      },
    ],
  },
  {
    bug: 'session control that does not fit is ignored',
    rule: 'reported',
    over: 'sctp',
    seed: 6,
    edits: [
      {
        file: 'daemon/iwarp/sctp/session.js',
        // biome-ignore lint/suspicious/noTemplateCurlyInString: text of the compiled file
        find: 'this.fail(`session control function ${message.function} does not fit the sequence`);',
        replace: ';',
      },
    ],
  },
  {
    bug: 'a message for which SCTP has no room is lost',
    rule: 'quiet',
    over: 'sctp',
    seed: 9,
    edits: [
      {
        file: 'daemon/host/sctp/sctp-link.js',
        find: 'if (this.#streams.send(this, kind, bytes))\n            return bytes.length;',
        replace: 'this.#streams.send(this, kind, bytes);\n        return bytes.length;',
      },
    ],
  },
  {
    bug: 'a port of SCTP outlives its association',
    rule: 'left',
    over: 'sctp',
    seed: 1,
    edits: [
      { file: 'daemon/host/sctp/shared-associations.js', find: 'opener.release();', replace: '' },
    ],
  },
];
