/** Where a reply and its bulk results are: in the message, or in memory that the call opened. */
import type { Exposed } from './call-message.ts';
import { returnedLengthBytes, WriteChunkSource } from './chunks.ts';
import type { CallFailure, CallOutcome } from './requester-types.ts';
import { MessageType } from './rpc-message.ts';
import type { MessageHeader, PaddedHeader } from './transport-header.ts';
import { wordAt } from './xdr-reader.ts';

/**
 * The reply that these headers and `payload` describe, or the failure of a reply that does not fit the
 * memory which its call opened. `payload` is the message that was pulled, for one with a read list.
 */
export function replyContents(
  header: MessageHeader | PaddedHeader,
  exposed: Exposed,
  payload: Uint8Array,
): CallOutcome {
  const results: (Uint8Array | undefined)[] = [];
  for (const [i, returned] of header.writeList.entries()) {
    const offered = exposed.writeList[i];
    const lengthBytes = offered && returnedLengthBytes(offered, returned);
    if (lengthBytes === undefined) {
      return failure('badReply', 'the reply uses a write chunk that was not offered', true);
    }
    results.push(exposed.results[i]?.subarray(0, lengthBytes));
  }
  if (header.writeList.length !== exposed.writeList.length) {
    return failure('badReply', 'write chunks are missing', true);
  }
  const bytes = replyBytes(header, exposed, payload);
  if (bytes === undefined || !isReply(bytes)) {
    return failure('badReply', 'no reply where the header says', true);
  }
  return {
    type: 'reply',
    bytes,
    bulk: new WriteChunkSource(results),
    padding:
      header.type === 'msgp'
        ? { alignBytes: header.alignBytes, thresholdBytes: header.thresholdBytes }
        : undefined,
  };
}

/** The outcome of a call without a usable reply. */
export function failure(reason: CallFailure, text: string, outcomeUnknown: boolean): CallOutcome {
  return { type: 'failure', failure: reason, text, outcomeUnknown };
}

/** True for bytes that start with an XID and the message type of a reply. */
export function isReply(bytes: Uint8Array): boolean {
  if (bytes.length < 8) return false;
  return wordAt(bytes, 4) === MessageType.reply;
}

function replyBytes(
  header: MessageHeader | PaddedHeader,
  exposed: Exposed,
  payload: Uint8Array,
): Uint8Array | undefined {
  if (header.type !== 'nomsg' || header.readList.length > 0) return payload;
  if (header.replyChunk === undefined || exposed.replyChunk === undefined) return undefined;
  const lengthBytes = returnedLengthBytes(exposed.replyChunk, header.replyChunk);
  if (lengthBytes === undefined) return undefined;
  return exposed.reply?.subarray(0, lengthBytes);
}
