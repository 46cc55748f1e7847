/**
 * Bugs that RoCE devices once had or could have, as edits of compiled code: see `../canaries.ts`.
 */
import type { HostCanary } from '../canaries.ts';

const REQUESTER = 'daemon/roce/transport/requester.js';
const RESPONDER = 'daemon/roce/transport/responder.js';
const UNRELIABLE = 'daemon/roce/transport/unreliable.js';
const CM_MESSAGES = 'daemon/roce/cm/message-handlers.js';
const ARRIVALS = 'daemon/host/roce/arrivals.js';

type PacketCanary = Omit<HostCanary, 'over'>;

const BUGS: readonly PacketCanary[] = [
  // Bugs that once existed.
  {
    bug: 'a request that names the queue pair of a peer ends its connection',
    rule: 'quiet',
    seed: 147,
    edits: [
      {
        file: CM_MESSAGES,
        find: 'this.#refuse(message, arrival, RejectReason.staleConnection);\n            this.#probe(stale, now);',
        replace:
          'this.#refuse(message, arrival, RejectReason.staleConnection);\n' +
          "            if (stale.state === 'established') { core.enterTimewait(stale, now);\n" +
          "            core.report({ type: 'disconnected', connection: stale, timedOut: false }); }",
      },
    ],
  },
  {
    bug: 'a Write without data passes a queue pair that permits none',
    rule: 'window',
    seed: 64,
    edits: [
      {
        file: 'daemon/rnic/queue-pair.js',
        find: 'if ((this.#lifecycle.granted & Access.remoteWrite) === 0) {\n            return this.#forbid(stag, toHi, toLo, length, Access.remoteWrite);\n        }\n        // IBTA',
        replace:
          'if (length > 0 && (this.#lifecycle.granted & Access.remoteWrite) === 0) {\n' +
          '            return this.#forbid(stag, toHi, toLo, length, Access.remoteWrite);\n        }\n        // IBTA',
      },
    ],
  },
  {
    bug: 'a packet of a wrong length is dropped, not refused',
    rule: 'reported',
    seed: 36,
    edits: [
      {
        file: RESPONDER,
        find: 'if (this.#open === Open.write || !this.#fits(packet, ends)) {\n            this.#refuse(NakCode.invalidRequest);',
        replace: 'if (this.#open === Open.write || !this.#fits(packet, ends)) {',
      },
    ],
  },
  {
    bug: 'queue pairs of one host do not compare addresses',
    rule: 'agree',
    seed: 20,
    edits: [
      {
        file: 'daemon/host/roce/departures.js',
        find: 'if (!named || !isFacing(receiver, sender))',
        replace: 'if (!named)',
      },
    ],
  },
  {
    bug: 'a queue pair is stale until the end of timewait',
    rule: 'quiet',
    seed: 116,
    edits: [
      {
        file: 'daemon/roce/cm/cm-core.js',
        find: "this.table.forgetRemoteQp(connection);\n        connection.transition('timewait');",
        replace: "connection.transition('timewait');",
      },
    ],
  },
  {
    bug: 'a connection outlives its queue pair',
    rule: 'ends',
    seed: 73,
    edits: [
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: "this.#host.effects.push({ type: 'abort', qp: this.#qp, why });",
        replace: '',
      },
    ],
  },
  {
    bug: 'a deep queue is flushed in one turn',
    rule: 'bounded',
    seed: 78,
    edits: [
      {
        file: 'daemon/rnic/queues/receiver.js',
        find: 'const share = Math.min(elements.count, TURN_ELEMENTS_MAX);',
        replace: 'const share = elements.count;',
      },
    ],
  },
  {
    bug: 'pipelined requests are all carried out in one turn',
    rule: 'share',
    seed: 2,
    edits: [
      {
        file: 'daemon/kernel/kernel-server.js',
        find: 'taken = reader.push(bytes, more);',
        replace: 'taken = reader.push(bytes);',
      },
    ],
  },
  // The transport.
  {
    bug: 'a gap is not noticed',
    rule: 'payload',
    seed: 5,
    edits: [
      {
        file: RESPONDER,
        find: 'this.#handleGap();',
        replace: 'this.#handleExpected(packet, bytes);',
      },
    ],
  },
  {
    bug: 'a repeated request is carried out again',
    rule: 'order',
    seed: 1,
    edits: [
      {
        file: RESPONDER,
        find: 'this.#handleRepeated(packet, -ahead);',
        replace: 'this.#handleExpected(packet, bytes);',
      },
    ],
  },
  {
    bug: 'a repeated atomic is carried out again',
    rule: 'atomic',
    seed: 12,
    edits: [
      {
        file: RESPONDER,
        find: 'return this.#replies.recall(packet.psn, reply);',
        replace: 'return this.#execute(packet) === 0;',
      },
    ],
  },
  {
    bug: 'the data of a repeated Write are placed again',
    rule: 'late',
    seed: 19,
    edits: [
      {
        file: RESPONDER,
        find: 'this.#handleRepeated(packet, -ahead);',
        replace:
          '{ if (packet.opcode === PacketOperation.writeOnly) { this.#toHi = packet.vaHi;\n' +
          '            this.#toLo = packet.vaLo; this.#stag = packet.rkey; this.#received = 0;\n' +
          '            this.#placeWrite(packet, bytes); }\n' +
          '        this.#handleRepeated(packet, -ahead); }',
      },
    ],
  },
  {
    bug: 'a message is done when it is sent',
    rule: 'arrived',
    seed: 29,
    edits: [
      {
        file: REQUESTER,
        find: 'this.#cursor += 1;',
        replace: '{ this.#cursor += 1; if (!message.awaitsResponse) this.#endOldest(); }',
      },
    ],
  },
  {
    bug: 'an acknowledgement of later packets completes a Read',
    rule: 'placed',
    seed: 38,
    edits: [
      {
        file: REQUESTER,
        find: 'this.#repeat();\n                return false;',
        replace: 'if (message.kind === 4) this.#user.readCompleted(); else return false;',
      },
    ],
  },
  {
    bug: 'a Read of one word returns what was in the sink',
    rule: 'moment',
    seed: 3,
    edits: [
      {
        file: REQUESTER,
        find: 'const refusal = user.placeReadPart(offset, bytes, payloadStart, payloadLength);',
        replace:
          'const refusal = payloadLength === 8 ? AccessRefusal.none : ' +
          'user.placeReadPart(offset, bytes, payloadStart, payloadLength);',
      },
    ],
  },
  {
    bug: 'a lost acknowledgement is never asked for',
    rule: 'progress',
    seed: 1,
    edits: [
      {
        file: REQUESTER,
        find: 'this.#timers.start(Timer.ack, now + this.#timeoutMicros);',
        replace: '',
      },
      {
        file: REQUESTER,
        find: 'this.#timers.start(Timer.ask, now + pacing.patienceMicros);',
        replace: '',
      },
      {
        file: REQUESTER,
        find: 'this.#timers.set(Timer.ask, done ? NEVER : now + patienceMicros);',
        replace: '',
      },
      {
        file: REQUESTER,
        find: 'this.#timers.set(Timer.ack, done ? NEVER : now + this.#timeoutMicros);',
        replace: '',
      },
    ],
  },
  {
    bug: 'PSNs do not wrap',
    rule: 'quiet',
    seed: 5,
    edits: [
      {
        file: 'daemon/roce/wire/psn.js',
        find: 'return ((psn - base) << 8) >> 8;',
        replace: 'return psn - base;',
      },
      {
        file: REQUESTER,
        find: "assert(psnDistance(this.#sendPsn, unacked) >= 0, 'next packet is already acknowledged');",
        replace: '',
      },
    ],
  },
  {
    bug: 'packets are longer than the path carries',
    rule: 'quiet',
    seed: 1,
    edits: [
      {
        file: 'daemon/host/roce/packet-connection.js',
        find: 'return pathMtu <= routeMtu ? attributes : { ...attributes, pathMtu: routeMtu };',
        replace: 'return attributes;',
      },
    ],
  },
  {
    bug: 'a Write over UC continues after a lost packet',
    rule: 'lossy',
    seed: 45,
    edits: [
      {
        file: UNRELIABLE,
        find: 'if (psn !== this.rqPsn || kind !== this.#open)',
        replace: 'if (kind !== this.#open)',
      },
    ],
  },
  {
    bug: 'a Write over UC completes a receive without its last bytes',
    rule: 'lossy',
    seed: 7,
    edits: [
      {
        file: UNRELIABLE,
        find: 'if (payloadLength === 0)\n            return true;\n        const hi',
        replace: 'if (payloadLength === 0 || ends)\n            return true;\n        const hi',
      },
    ],
  },
  {
    bug: 'a Write over UC is lost within a host',
    rule: 'lossy',
    seed: 94,
    edits: [{ file: UNRELIABLE, find: 'this.#open = kind;', replace: 'this.#open = 0;' }],
  },
  {
    bug: 'a Write over UC is placed up to the end of its target',
    rule: 'late',
    seed: 15,
    edits: [
      {
        file: UNRELIABLE,
        find: 'if (user.checkWriteTarget(rkey, vaHi, vaLo, dmaLength) !== AccessRefusal.none)',
        replace: 'if (false)',
      },
    ],
  },
  {
    bug: 'a datagram of another key is taken',
    rule: 'datagram',
    seed: 25,
    edits: [
      {
        file: 'daemon/roce/transport/datagram.js',
        find: 'if (qkey !== this.#qkey) {',
        replace: 'if (false) {',
      },
    ],
  },
  // Packets of a host.
  {
    bug: 'a damaged packet is taken',
    rule: 'payload',
    seed: 50,
    edits: [
      {
        file: 'daemon/host/roce/udp-link.js',
        find: 'if (!this.#isWhole(socket, slot, segment)) {',
        replace: 'if (false) {',
      },
    ],
  },
  {
    bug: 'a packet for no queue pair is not counted',
    rule: 'counted',
    seed: 1,
    edits: [{ file: ARRIVALS, find: 'counters.unexpected += 1;', replace: ';' }],
  },
  {
    bug: 'multicast is not counted as received',
    rule: 'counted',
    seed: 28,
    edits: [
      {
        file: 'daemon/host/roce/packet-connection.js',
        find: 'countPacket(packet, from, counters);',
        replace: 'if (packet.destQpn !== 0xffffff) countPacket(packet, from, counters);',
      },
    ],
  },
  {
    bug: 'a packet that a fault drops also counts as undeliverable',
    rule: 'counted',
    seed: 252,
    edits: [
      {
        file: 'daemon/host/roce/departures.js',
        find: 'if (fate.dropped)\n            return false;',
        replace:
          'if (fate.dropped) { sender.port.counters.undeliverable += 1;\n            return false; }',
      },
    ],
  },
  {
    bug: 'an asynchronous event names another queue pair',
    rule: 'events',
    seed: 3,
    edits: [
      {
        file: 'daemon/ipc/verbs/client-context.js',
        find: "qpNum: object.kind === 'qp' ? object.qp.qpn : undefined,",
        replace: "qpNum: object.kind === 'qp' ? object.qp.qpn ^ 1 : undefined,",
      },
    ],
  },
  {
    bug: 'receives that are posted to a queue pair in error stay there',
    rule: 'once',
    seed: 242,
    edits: [
      {
        file: 'daemon/host/errored-queue-pairs.js',
        find: 'loaded += nic.flushErrored(now);',
        replace: ';',
      },
    ],
  },
  {
    bug: 'the socket of a group stays open after its last queue pair has left',
    rule: 'left',
    seed: 7,
    edits: [
      {
        file: 'daemon/host/roce/group-sockets.js',
        find: 'else\n            membership.socket.udp.close();',
        replace: '',
      },
    ],
  },
  // Queues.
  {
    bug: 'a drained send queue is reported when its work is sent',
    rule: 'drained',
    seed: 167,
    edits: [
      {
        file: 'daemon/rnic/qp-lifecycle.js',
        find: 'if (this.#state !== QPState.SQD || !this.#sendQueue.drained)',
        replace: 'if (this.#state !== QPState.SQD)',
      },
    ],
  },
  {
    bug: 'the limit of a shared receive queue is reported for each receive',
    rule: 'limit',
    seed: 395,
    edits: [
      {
        file: 'daemon/rnic/queues/shared-receive-queue.js',
        find: 'this.#limit = 0;\n        this.#reportLimit(`fewer',
        replace: 'this.#reportLimit(`fewer',
      },
    ],
  },
  {
    bug: 'a completion queue that is armed does not fire',
    rule: 'wake',
    seed: 5,
    edits: [
      {
        file: 'daemon/rnic/queues/completion-queue.js',
        find: 'this.#effects.push(this.#fired);',
        replace: 'if (this.written % 8 !== 0) this.#effects.push(this.#fired);',
      },
    ],
  },
  // Connections of ids.
  {
    bug: 'a repeated request is reported again after its rejection',
    rule: 'outcome',
    seed: 36,
    edits: [
      {
        file: CM_MESSAGES,
        find: 'core.send(this.#pathBack(arrival), kept);\n            return true;\n        }',
        replace: '}',
      },
    ],
  },
  {
    bug: 'an end that the peer asks for is not reported',
    rule: 'ends',
    seed: 3,
    edits: [
      {
        file: 'daemon/host/roce/roce-cm.js',
        find: "this.#end(id, roce, undefined, 'disconnected');",
        replace: ';',
      },
    ],
  },
  {
    bug: 'the private data of an answer are cut',
    rule: 'private',
    seed: 5,
    edits: [
      {
        file: CM_MESSAGES,
        find: 'srq: fields.srq !== 0,\n        privateData: fields.privateData,',
        replace:
          'srq: fields.srq !== 0,\n        privateData: fields.privateData.subarray(0, 120),',
      },
    ],
  },
  {
    bug: 'an id that shares its port listens beside another listener',
    rule: 'alone',
    seed: 193,
    edits: [
      {
        file: 'daemon/host/roce/roce-cm.js',
        find: 'if (id.reuseAddress)\n            this.#ports.assertAlone(holderOf(id));',
        replace: '',
      },
      {
        file: 'daemon/host/host-cm.js',
        find: 'id.reuseAddress = false;\n    }',
        replace: '}',
      },
    ],
  },
  {
    bug: 'a listener gets requests for any port',
    rule: 'alone',
    seed: 16,
    edits: [
      {
        file: CM_MESSAGES,
        find: 'this.#core.listeners.get(serviceIdLo) ?? []',
        replace: '[...this.#core.listeners.values()].flatMap((some) => [...some])',
      },
    ],
  },
  {
    bug: 'every id asks for a reliable connection',
    rule: 'refused',
    seed: 2,
    edits: [
      {
        file: 'daemon/host/roce/roce-cm.js',
        find: 'const type = qp?.type === QPType.uc ? QPType.uc : QPType.rc;',
        replace: 'const type = QPType.rc;',
      },
    ],
  },
  {
    bug: 'a queue pair in INIT cannot be connected',
    rule: 'refused',
    seed: 3,
    edits: [
      {
        file: 'daemon/host/roce/queue-pair-driver.js',
        find: 'if (qp.state !== QPState.INIT && qp.state !== QPState.RESET) {',
        replace: 'if (qp.state !== QPState.RESET) {',
      },
    ],
  },
];

export const PACKET_CANARIES: readonly HostCanary[] = BUGS.map((bug) => ({ ...bug, over: 'roce' }));
