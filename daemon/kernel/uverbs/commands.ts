/**
 * The write() ABI of uverbs: checks a command's header and sizes like the kernel, in the same order,
 * and calls the handler.
 */
import { invalid, VerbsError } from '#contract/verbs/errors';
import { failFaultyVerb } from '#daemon/clients/objects/verb-faults';
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
  if (bytes.length < CommandHeader.bytes)
    throw invalid(`a command has a header of 8 bytes; this has ${bytes.length}`);
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const word = fields.getUint32(CommandHeader.command, true);
  const extended = word >= CommandBit.extended;
  const number = word & CommandBit.number;
  if ((word & ~(CommandBit.extended | CommandBit.number)) !== 0) {
    throw invalid(`the command word 0x${word.toString(16)} has unknown bits`);
  }
  const found = (extended ? commands.extended : commands.plain).get(number);
  if (found === undefined) {
    throw new VerbsError(
      'EOPNOTSUPP',
      `the device has no ${extended ? 'extended ' : ''}command ${number}`,
    );
  }
  const privateBytes = file.persona.privateBytes[number] ?? NO_PRIVATE_BYTES;
  const outBytes = extended
    ? checkExtended(fields, found)
    : checkPlain(fields, found, privateBytes);
  if (!file.hasContext && found.execute !== getContext)
    throw invalid('the device file has no context: ibv_open_device makes it (GET_CONTEXT)');
  const verb = extended ? undefined : UVERBS_VERBS[number];
  failFaultyVerb(file.services.host, verb, () => {
    return { device: file.device.name, pid: caller.credentials.pid };
  });
  return found.execute({ file, fields, bytes, caller, outBytes });
}

function checkPlain(fields: DataView, found: UverbsCommand, own: PrivateBytes): number {
  const { byteLength } = fields;
  const said = fields.getUint16(CommandHeader.inWords, true) * 4;
  if (said !== byteLength)
    throw invalid(`the write has ${byteLength} bytes, its header says ${said}`);
  assertRoom('the request', byteLength, found.requestBytes);
  const outBytes = fields.getUint16(CommandHeader.outWords, true) * 4;
  assertRoom('the response', outBytes, found.responseBytes);
  const isWhole =
    byteLength >= found.requestBytes + own.request &&
    outBytes >= found.responseBytes + own.response;
  // The kernel uses one errno for this and another for a truncated shared part.
  if (!isWhole) {
    const { request, response } = own;
    throw invalid(
      `the provider's part of the command is missing: ${request} bytes of request and ${response} of response`,
    );
  }
  return outBytes;
}

function checkExtended(fields: DataView, found: UverbsCommand): number {
  const { byteLength } = fields;
  if (byteLength < ExtendedHeader.bytes) {
    throw invalid(`an extended command has headers of 24 bytes; this has ${byteLength}`);
  }
  const coreBytes = fields.getUint16(CommandHeader.inWords, true) * 8;
  const providerBytes = fields.getUint16(ExtendedHeader.providerInWords, true) * 8;
  if (coreBytes + providerBytes !== byteLength - ExtendedHeader.bytes) {
    throw invalid(
      `the extended command has ${byteLength} bytes, its headers say that ${coreBytes} and ${providerBytes} follow`,
    );
  }
  assertRoom('the extended request', coreBytes, found.requestBytes - ExtendedHeader.bytes);
  if (fields.getUint32(ExtendedHeader.reserved, true) !== 0) {
    throw invalid('cmd_hdr_reserved of the extended header is not 0');
  }
  const outBytes = fields.getUint16(CommandHeader.outWords, true) * 8;
  const providerOutBytes = fields.getUint16(ExtendedHeader.providerOutWords, true) * 8;
  const hasPointer =
    fields.getUint32(ExtendedHeader.response, true) !== 0 ||
    fields.getUint32(ExtendedHeader.response + 4, true) !== 0;
  if (hasPointer !== outBytes + providerOutBytes > 0) {
    throw invalid('the extended header has a response without room, or room without a response');
  }
  // A call without a response is legal; a query then does nothing.
  if (hasPointer) assertRoom('the extended response', outBytes, found.responseBytes);
  return outBytes;
}

function assertRoom(what: string, has: number, needs: number): void {
  if (has >= needs) return;
  throw new VerbsError('ENOSPC', `${what} has room for ${has} bytes and needs ${needs}`);
}
