/**
 * The write() ABI of uverbs: checks a command's header and sizes as the kernel does, in its order,
 * and calls the command.
 */
import { VerbsError } from '../../../../verbs-api/contract/verbs/errors.ts';
import { failFaultyVerb } from '../../objects/verb-faults.ts';
import type { KernelCaller, KernelReply } from '../kernel-file.ts';
import { UVERBS_VERBS } from '../kernel-verbs.ts';
import type { CommandSet, UverbsCommand } from './command-set.ts';
import { CommandBit, CommandHeader, ExtendedHeader } from './layouts.ts';
import type { OpenDevice } from './open-device.ts';
import type { PrivateBytes } from './persona.ts';
import { getContext } from './queries.ts';

const NO_PRIVATE_BYTES: PrivateBytes = { request: 0, response: 0 };

/** Executes what the program wrote. Throws `VerbsError` with the kernel's errno. */
export function executeWrite(
  file: OpenDevice,
  commands: CommandSet,
  bytes: Uint8Array,
  caller: KernelCaller,
): KernelReply {
  if (bytes.length < CommandHeader.bytes) throw invalid('a command has a header');
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const word = fields.getUint32(CommandHeader.command, true);
  const extended = word >= CommandBit.extended;
  const number = word & CommandBit.number;
  if ((word & ~(CommandBit.extended | CommandBit.number)) !== 0) {
    throw invalid('unknown bits in the command');
  }
  const found = (extended ? commands.extended : commands.plain).get(number);
  if (found === undefined) {
    throw new VerbsError('EOPNOTSUPP', `no command ${number}${extended ? ' (extended)' : ''}`);
  }
  const privateBytes = file.persona.privateBytes[number] ?? NO_PRIVATE_BYTES;
  const outBytes = extended
    ? checkExtended(fields, found)
    : checkPlain(fields, found, privateBytes);
  if (!file.hasContext && found.execute !== getContext) throw invalid('no context yet');
  const verb = extended ? undefined : UVERBS_VERBS[number];
  failFaultyVerb(file.services.host, verb, () => {
    return { device: file.device.name, pid: caller.credentials.pid };
  });
  return found.execute({ file, fields, bytes, caller, outBytes });
}

function checkPlain(fields: DataView, found: UverbsCommand, own: PrivateBytes): number {
  if (fields.getUint16(CommandHeader.inWords, true) * 4 !== fields.byteLength) {
    throw invalid('the length of the write does not match its header');
  }
  if (fields.byteLength < found.requestBytes) throw noSpace('the request');
  const outBytes = fields.getUint16(CommandHeader.outWords, true) * 4;
  if (outBytes < found.responseBytes) throw noSpace('the response');
  const isWhole =
    fields.byteLength >= found.requestBytes + own.request &&
    outBytes >= found.responseBytes + own.response;
  // The kernel has one errno for this and another for a truncated shared part.
  if (!isWhole) throw invalid('the private part of the provider is missing');
  return outBytes;
}

function checkExtended(fields: DataView, found: UverbsCommand): number {
  if (fields.byteLength < ExtendedHeader.bytes) throw invalid('no extended header');
  const coreBytes = fields.getUint16(CommandHeader.inWords, true) * 8;
  const providerBytes = fields.getUint16(ExtendedHeader.providerInWords, true) * 8;
  if (coreBytes + providerBytes !== fields.byteLength - ExtendedHeader.bytes) {
    throw invalid('the length of the write does not match its header');
  }
  if (coreBytes < found.requestBytes - ExtendedHeader.bytes) throw noSpace('the request');
  if (fields.getUint32(ExtendedHeader.reserved, true) !== 0) throw invalid('reserved is not 0');
  const outBytes = fields.getUint16(CommandHeader.outWords, true) * 8;
  const providerOutBytes = fields.getUint16(ExtendedHeader.providerOutWords, true) * 8;
  const hasPointer =
    fields.getUint32(ExtendedHeader.response, true) !== 0 ||
    fields.getUint32(ExtendedHeader.response + 4, true) !== 0;
  if (hasPointer !== outBytes + providerOutBytes > 0) throw invalid('a response without room');
  // A call without a response is legal, and for a query it does nothing.
  if (hasPointer && outBytes < found.responseBytes) throw noSpace('the response');
  return outBytes;
}

function invalid(text: string): VerbsError {
  return new VerbsError('EINVAL', text);
}

function noSpace(what: string): VerbsError {
  return new VerbsError('ENOSPC', `${what} is too short`);
}
