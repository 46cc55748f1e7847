/** RPC over RDMA: headers and chunk lists, RPC messages, XDR of NFS, and both ends' machines. */

import type { Draws } from '#test/support/draws';
import { hexOf } from '#test/support/hex';
import { inPieces, mutated } from '#test/support/mutate';
import { flat } from '#test/support/nfs-rig';
import {
  callPayload,
  messageBytes,
  RequesterRig,
  ResponderRig,
  replyPayload,
  shortCall,
  shortReply,
  wholeOf,
} from '#test/support/rpcrdma-rig';
import { MOUNT3 } from '#verbs-api/nfs/nfs3/mount3-program';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { RecordAssembler } from '#verbs-api/nfs/tcp/record-marking';
import { parsePrivateData } from '#verbs-api/rpcrdma/core/private-data';
import type { AnyProcedure } from '#verbs-api/rpcrdma/core/program';
import { Responder } from '#verbs-api/rpcrdma/core/responder';
import {
  parseCredential,
  readCallHeader,
  readReplyHeader,
  writeCallHeader,
} from '#verbs-api/rpcrdma/core/rpc-message';
import { parseTransportHeader } from '#verbs-api/rpcrdma/core/transport-header';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { canary, claim, type FuzzTarget, type Outcome } from '../target.ts';

const NO_LISTS = { readList: [], writeList: [], replyChunk: undefined };

/** Valid messages of both directions, with chunks of each kind. */
const MESSAGES: readonly Uint8Array[] = [
  shortCall(1),
  shortReply(2),
  messageBytes({ type: 'done', xid: 3, credits: 1 }),
  messageBytes({ type: 'error', xid: 4, credits: 1, version: 1, error: { code: 'chunk' } }),
  ...(['msg', 'nomsg'] as const).map((type) =>
    messageBytes(
      {
        type,
        xid: 5,
        credits: 1,
        readList: [
          { position: type === 'msg' ? 44 : 0, handle: 1, lengthBytes: 40, offset: 0n },
          { position: 96, handle: 1, lengthBytes: 8, offset: 64n },
        ],
        writeList: [[{ handle: 2, lengthBytes: 64, offset: 0n }], []],
        replyChunk: [{ handle: 3, lengthBytes: 64, offset: 0n }],
      },
      callPayload(5),
    ),
  ),
  messageBytes(
    { type: 'msgp', xid: 6, credits: 1, alignBytes: 8, thresholdBytes: 4, ...NO_LISTS },
    callPayload(6),
  ),
];
const RPC_MESSAGES: readonly Uint8Array[] = [
  wholeOf(callPayload(1, (writer) => writer.opaque(new Uint8Array(33)))),
  wholeOf(replyPayload(2, (writer) => writer.opaque(new Uint8Array(9)))),
  flat(credentialCall()),
];
const PROCEDURES: readonly AnyProcedure[] = [
  ...Object.values(NFS3.procedures),
  ...Object.values(MOUNT3.procedures),
] as unknown as AnyProcedure[];

/** A call with AUTH_SYS groups. */
function credentialCall(): XdrWriter {
  const body = new XdrWriter();
  for (const word of [1, 4, 0x74657374, 0, 0, 3, 1, 2, 3]) body.uint32(word);
  const writer = new XdrWriter();
  writeCallHeader(writer, {
    xid: 7,
    program: NFS3.number,
    version: NFS3.version,
    procedure: 1,
    credential: { flavor: 1, body: flat(body) },
    verifier: { flavor: 0, body: new Uint8Array(0) },
  });
  return writer;
}

/** Runs code that may refuse input with an `XdrError`. Returns false if it did. */
function accepted(parse: () => void): boolean {
  try {
    parse();
    return true;
  } catch (error) {
    if (!(error instanceof XdrError)) throw error;
    return false;
  }
}

/** Headers, RPC messages and XDR. */
export const rpcCodec: FuzzTarget = {
  name: 'rpc-codec',
  about: 'headers and chunk lists, RPC messages, records and the XDR of NFS and MOUNT',
  batchInputs: 20_000,
  weight: 60_000,
  smokeInputs: 15_000,
  canary: canary(20_000, XdrReader.prototype, 'uint32', (get) => {
    const value = get();
    if (value === 0xffff_fffe) throw new RangeError('planted');
    return value;
  }),
  open: () => ({
    run(draws) {
      switch (draws.below(4)) {
        case 0:
          return header(mutated(draws.pick(MESSAGES), MESSAGES, draws, draws.below(4)), draws);
        case 1:
          return message(mutated(draws.pick(RPC_MESSAGES), MESSAGES, draws, draws.below(4)), draws);
        case 2:
          return records(draws);
        default:
          return xdr(draws);
      }
    },
    close: () => undefined,
  }),
};

function header(input: Uint8Array, draws: Draws): Outcome {
  if (draws.recording) draws.show(`header ${hexOf(input)}`);
  if (draws.oneIn(8)) parsePrivateData(input);
  const parsed = parseTransportHeader(input);
  if ('error' in parsed) return 'refused';
  claim(parsed.headerBytes <= input.length, 'a header is longer than its message');
  // A decoded message must encode again, with the same length.
  const again = messageBytes(parsed.header);
  const reread = parseTransportHeader(again);
  claim(!('error' in reread), 'a parsed header cannot be written');
  claim(reread.headerBytes === parsed.headerBytes, 'a header changes its length');
  return parsed.header.type;
}

function message(input: Uint8Array, draws: Draws): Outcome {
  if (draws.recording) draws.show(`message ${hexOf(input)}`);
  const isCall = accepted(() => {
    const call = readCallHeader(new XdrReader(input));
    if ('credential' in call) accepted(() => void parseCredential(call.credential));
  });
  const isReply = accepted(() => void readReplyHeader(new XdrReader(input)));
  return isCall ? 'call' : isReply ? 'reply' : 'refused';
}

function records(draws: Draws): Outcome {
  const whole = new Uint8Array(draws.below(4) * 40 + draws.below(200));
  for (let at = 0; at + 4 <= whole.length; ) {
    const length = draws.below(40);
    const last = draws.oneIn(2) ? 0x8000_0000 : 0;
    new DataView(whole.buffer).setUint32(at, (last | length) >>> 0);
    at += 4 + length;
  }
  const input = mutated(whole, MESSAGES, draws, draws.below(3));
  if (draws.recording) draws.show(`records ${hexOf(input)}`);
  const assembler = new RecordAssembler(100);
  let bytes = 0;
  let refused = false;
  inPieces(input, draws, (start, end) => {
    if (refused) return;
    const found = assembler.handle(Buffer.from(input.subarray(start, end)));
    refused = found === undefined;
    for (const record of found ?? []) {
      claim(record.length <= 100, 'a record is too long');
      bytes += record.length;
    }
  });
  claim(bytes <= input.length, 'records exceed the input');
  return refused ? 'refused' : 'records';
}

function xdr(draws: Draws): Outcome {
  const procedure = draws.pick(PROCEDURES);
  const words = new XdrWriter();
  // Lengths and booleans are small numbers; the rest is random.
  for (let count = draws.below(40); count > 0; count--) {
    words.uint32(draws.oneIn(3) ? draws.word() : draws.below(10));
  }
  const input = mutated(flat(words), RPC_MESSAGES, draws, draws.below(2));
  if (draws.recording) draws.show(`procedure ${procedure.number} ${hexOf(input)}`);
  const codec = draws.oneIn(2) ? procedure.args : procedure.result;
  let value: unknown;
  const good = accepted(() => {
    const reader = new XdrReader(input);
    value = codec.decode(reader);
  });
  if (!good) return 'refused';
  const writer = new XdrWriter();
  codec.encode(writer, value);
  const written = flat(writer);
  accepted(() => void codec.decode(new XdrReader(written)));
  return 'decoded';
}

/** Requester and responder against malformed messages. */
export const rpcMachine: FuzzTarget = {
  name: 'rpc-machine',
  about: 'requester and responder against hostile messages',
  batchInputs: 10_000,
  weight: 20_000,
  smokeInputs: 10_000,
  // A responder that forgets to repost a receive.
  canary: canary(2_000, Responder.prototype, 'pollEffect', (poll) => {
    const effect = poll();
    return effect?.type === 'repost' ? undefined : effect;
  }),
  open: () => ({
    run(draws) {
      const input = mutated(draws.pick(MESSAGES), MESSAGES, draws, draws.below(4));
      const readListReplies = draws.oneIn(2);
      if (draws.recording) draws.show(`${readListReplies} ${hexOf(input)}`);
      return draws.oneIn(2) ? respond(input, readListReplies) : ask(input, readListReplies);
    },
    close: () => undefined,
  }),
};

function respond(input: Uint8Array, readListReplies: boolean): Outcome {
  const rig = new ResponderRig({ readListReplies, stallTimeoutMs: 10 });
  rig.holdPulls = true;
  const receive = rig.handle(input);
  const [effect] = rig.effects;
  // Reads of memory that the message names: a channel completes them or ends.
  if (effect?.type === 'pull') {
    const chunks = effect.chunks.map(({ lengthBytes }) => new Uint8Array(lengthBytes));
    rig.responder.pulled(effect.call, chunks, 0);
    rig.drain();
  }
  const [running] = rig.dispatched;
  if (running !== undefined) {
    try {
      rig.reply(running);
    } catch (error) {
      // The rig's memory lacks the message's chunks.
      if (!(error instanceof Error) || !/^(?:no region|outside)/.test(error.message)) throw error;
      return 'no memory';
    }
  }
  claim(rig.reposted.join() === String(receive), `receives posted again: ${rig.reposted.join()}`);
  claim(rig.responder.callCount === 0, 'a call is left');
  claim(rig.sent.length <= 1, 'answers twice');
  return running === undefined ? 'no call' : 'call';
}

function ask(input: Uint8Array, readListReplies: boolean): Outcome {
  const rig = new RequesterRig({ readListReplies });
  rig.call(2, { resultBytes: [5000], replyMaxBytes: 3000 });
  rig.call(3);
  rig.handle(input);
  const others = rig.sent.slice(1);
  claim(
    others.every(({ header: sent }) => sent.xid === 3),
    'answers a message',
  );
  claim(rig.requester.callCount + rig.outcomes.size === 2, 'a call ends twice or not at all');
  const ended = rig.outcomes.size;
  rig.requester.close();
  rig.drain();
  claim(rig.outcomes.size === 2, 'a call does not end');
  claim(rig.memory.regions.size === 0, 'memory is left');
  return ended === 0 ? 'no reply' : 'reply';
}
