/**
 * The write() ABI of uverbs: checks a command's header and sizes as the kernel does, in its order,
 * and calls the command.
 */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import { failFaultyVerb } from '../verb-faults.ts';
import type { KernelCaller, KernelReply } from './kernel-file.ts';
import { UVERBS_VERBS } from './kernel-verbs.ts';
import type { UverbsFile } from './uverbs-file.ts';
import {
  AllocPD,
  CommandBit,
  CommandHeader,
  CountedDestroy,
  CreateCompChannel,
  CreateCQ,
  CreateQP,
  CreateSRQ,
  DestroyCQ,
  EventsReported,
  ExtendedCommandNumber,
  ExtendedHeader,
  ExtendedQueryDevice,
  GetContext,
  ModifyQP,
  ModifySRQ,
  PlainDestroy,
  PostSend,
  QueryDevice,
  QueryPort,
  QueryQP,
  RegMR,
  UverbsCommandNumber,
} from './uverbs-layouts.ts';
import { allocPD, deallocPD, deregMR, regMR } from './uverbs-memory.ts';
import { extendedQueryDevice, getContext, queryDevice, queryPort } from './uverbs-queries.ts';
import { createQP, destroyQPCommand, modifyQP, postSend, queryQP } from './uverbs-queue-pairs.ts';
import {
  createCompChannel,
  createCQ,
  createSRQ,
  destroyCQCommand,
  destroySRQCommand,
  modifySRQ,
} from './uverbs-queues.ts';

/** What a command works on; borrowed until it returns. */
export interface CommandCall {
  readonly file: UverbsFile;
  /** All octets of the write. Its size has been checked against the command's. */
  readonly fields: DataView;
  readonly octets: Uint8Array;
  readonly caller: KernelCaller;
  /** Octets that the program has room for. */
  readonly outBytes: number;
}

/** A command: sizes in octets, headers included, and what it does. */
interface UverbsCommand {
  /** Shorter is ENOSPC. */
  readonly requestCoreBytes: number;
  /** Shorter is EINVAL: the provider's part is missing. */
  readonly requestBytes: number;
  /** Less room is ENOSPC. */
  readonly responseCoreBytes: number;
  /** Less room is EINVAL: the provider's part has none. */
  readonly responseBytes: number;
  readonly execute: (call: CommandCall) => KernelReply;
}

interface RequestSize {
  readonly coreBytes?: number;
  readonly bytes: number;
}

const NO_FIELDS: RequestSize = { bytes: 16 };
const NO_RESPONSE: RequestSize = { bytes: 0 };

function command(
  request: RequestSize,
  response: RequestSize,
  execute: (call: CommandCall) => KernelReply,
): UverbsCommand {
  return {
    requestCoreBytes: request.coreBytes ?? request.bytes,
    requestBytes: request.bytes,
    responseCoreBytes: response.coreBytes ?? response.bytes,
    responseBytes: response.bytes,
    execute,
  };
}

const N = UverbsCommandNumber;

/** The commands that exist; every other number is EOPNOTSUPP. */
const COMMANDS: ReadonlyMap<number, UverbsCommand> = new Map([
  [N.getContext, command(NO_FIELDS, GetContext.response, getContext)],
  [N.queryDevice, command(NO_FIELDS, QueryDevice.response, queryDevice)],
  [N.queryPort, command(QueryPort.request, QueryPort.response, queryPort)],
  [N.allocPD, command(NO_FIELDS, AllocPD.response, allocPD)],
  [N.deallocPD, command(PlainDestroy.request, NO_RESPONSE, deallocPD)],
  [N.regMR, command(RegMR.request, RegMR.response, regMR)],
  [N.deregMR, command(PlainDestroy.request, NO_RESPONSE, deregMR)],
  [N.createCompChannel, command(NO_FIELDS, CreateCompChannel.response, createCompChannel)],
  [N.createCQ, command(CreateCQ.request, CreateCQ.response, createCQ)],
  [N.destroyCQ, command(CountedDestroy.request, DestroyCQ.response, destroyCQCommand)],
  [N.createQP, command(CreateQP.request, CreateQP.response, createQP)],
  [N.queryQP, command(QueryQP.request, QueryQP.response, queryQP)],
  [N.modifyQP, command(ModifyQP.request, NO_RESPONSE, modifyQP)],
  [N.destroyQP, command(CountedDestroy.request, EventsReported.response, destroyQPCommand)],
  [N.postSend, command(PostSend.request, PostSend.response, postSend)],
  [N.createSRQ, command(CreateSRQ.request, CreateSRQ.response, createSRQ)],
  [N.modifySRQ, command(ModifySRQ.request, NO_RESPONSE, modifySRQ)],
  [N.destroySRQ, command(CountedDestroy.request, EventsReported.response, destroySRQCommand)],
]);

const EXTENDED_COMMANDS: ReadonlyMap<number, UverbsCommand> = new Map([
  [
    ExtendedCommandNumber.queryDevice,
    command(ExtendedQueryDevice.request, ExtendedQueryDevice.response, extendedQueryDevice),
  ],
]);

/** Executes what the program wrote. Throws `VerbsError` with the kernel's errno. */
export function executeWrite(
  file: UverbsFile,
  octets: Uint8Array,
  caller: KernelCaller,
): KernelReply {
  if (octets.length < CommandHeader.bytes) throw invalid('a command has a header');
  const fields = new DataView(octets.buffer, octets.byteOffset, octets.length);
  const word = fields.getUint32(CommandHeader.command, true);
  const extended = word >= CommandBit.extended;
  const number = word & CommandBit.number;
  if ((word & ~(CommandBit.extended | CommandBit.number)) !== 0) {
    throw invalid('unknown bits in the command');
  }
  const found = (extended ? EXTENDED_COMMANDS : COMMANDS).get(number);
  if (found === undefined) {
    throw new VerbsError('EOPNOTSUPP', `no command ${number}${extended ? ' (extended)' : ''}`);
  }
  const outBytes = extended ? checkExtended(fields, found) : checkPlain(fields, found);
  if (!file.hasContext && found.execute !== getContext) throw invalid('no context yet');
  const verb = extended ? undefined : UVERBS_VERBS[number];
  failFaultyVerb(file.services.host, verb, () => {
    return { device: file.device.name, pid: caller.credentials.pid };
  });
  return found.execute({ file, fields, octets, caller, outBytes });
}

function checkPlain(fields: DataView, found: UverbsCommand): number {
  if (fields.getUint16(CommandHeader.inWords, true) * 4 !== fields.byteLength) {
    throw invalid('the length of the write is not that of its header');
  }
  if (fields.byteLength < found.requestCoreBytes) throw noSpace('the request');
  const outBytes = fields.getUint16(CommandHeader.outWords, true) * 4;
  if (outBytes < found.responseCoreBytes) throw noSpace('the response');
  if (fields.byteLength < found.requestBytes || outBytes < found.responseBytes) {
    throw invalid('the part of the provider is missing');
  }
  return outBytes;
}

function checkExtended(fields: DataView, found: UverbsCommand): number {
  if (fields.byteLength < ExtendedHeader.bytes) throw invalid('no extended header');
  const coreBytes = fields.getUint16(CommandHeader.inWords, true) * 8;
  const providerBytes = fields.getUint16(ExtendedHeader.providerInWords, true) * 8;
  if (coreBytes + providerBytes !== fields.byteLength - ExtendedHeader.bytes) {
    throw invalid('the length of the write is not that of its header');
  }
  if (coreBytes < found.requestBytes - ExtendedHeader.bytes) throw noSpace('the request');
  if (fields.getUint32(ExtendedHeader.reserved, true) !== 0) throw invalid('reserved is not 0');
  const outBytes = fields.getUint16(CommandHeader.outWords, true) * 8;
  const providerOutBytes = fields.getUint16(ExtendedHeader.providerOutWords, true) * 8;
  const hasPointer =
    fields.getUint32(ExtendedHeader.response, true) !== 0 ||
    fields.getUint32(ExtendedHeader.response + 4, true) !== 0;
  if (hasPointer !== outBytes + providerOutBytes > 0) throw invalid('a response without room');
  // A call without a response is legal, and does nothing for a query.
  if (hasPointer && outBytes < found.responseCoreBytes) throw noSpace('the response');
  return outBytes;
}

function invalid(text: string): VerbsError {
  return new VerbsError('EINVAL', text);
}

function noSpace(what: string): VerbsError {
  return new VerbsError('ENOSPC', `${what} is too short`);
}
