/** The commands that rxe's provider issues. */
import { type CommandSet, command, NO_FIELDS, NO_RESPONSE } from '../command-set.ts';
import {
  AllocMW,
  CreateAH,
  CreateCQ,
  CreateQP,
  CreateSRQ,
  ExtendedCommandNumber,
  ExtendedCreateQP,
  ExtendedHeader,
  ModifyQP,
  ModifySRQ,
  Multicast,
  UverbsCommandNumber as N,
  PlainDestroy,
  QueryQP,
  QuerySRQ,
  RequestNotify,
  ResizeCQ,
} from '../layouts.ts';
import { SHARED_COMMANDS } from '../shared-commands.ts';
import { createAH, destroyAHCommand } from './address-handles.ts';
import { attachMulticast, detachMulticast } from './multicast.ts';
import { createQP, extendedCreateQP, modifyQP, queryQP } from './queue-pairs.ts';
import {
  createCQ,
  createSRQ,
  modifySRQ,
  querySRQ,
  refuseExtended,
  requestNotify,
  resizeCQ,
} from './queues.ts';
import { allocMW, deallocMW } from './windows.ts';

const PLAIN: CommandSet['plain'] = new Map([
  ...SHARED_COMMANDS.plain,
  [N.createAH, command(CreateAH.request, CreateAH.response, createAH)],
  [N.destroyAH, command(PlainDestroy.request, NO_RESPONSE, destroyAHCommand)],
  [N.allocMW, command(AllocMW.request, AllocMW.response, allocMW)],
  [N.deallocMW, command(PlainDestroy.request, NO_RESPONSE, deallocMW)],
  [N.createCQ, command(CreateCQ.request, CreateCQ.response, createCQ)],
  [N.resizeCQ, command(ResizeCQ.request, ResizeCQ.response, resizeCQ)],
  [N.requestNotify, command(RequestNotify.request, NO_RESPONSE, requestNotify)],
  [N.createQP, command(CreateQP.request, CreateQP.response, createQP)],
  [N.queryQP, command(QueryQP.request, QueryQP.response, queryQP)],
  [N.modifyQP, command(ModifyQP.request, NO_RESPONSE, modifyQP)],
  [N.attachMulticast, command(Multicast.request, NO_RESPONSE, attachMulticast)],
  [N.detachMulticast, command(Multicast.request, NO_RESPONSE, detachMulticast)],
  [N.createSRQ, command(CreateSRQ.request, CreateSRQ.response, createSRQ)],
  [N.modifySRQ, command(ModifySRQ.request, NO_RESPONSE, modifySRQ)],
  [N.querySRQ, command(QuerySRQ.request, QuerySRQ.response, querySRQ)],
  [N.createXSRQ, command(NO_FIELDS, NO_RESPONSE, refuseExtended)],
]);

/** For requests that are refused whatever they contain. */
const EXTENDED_HEADER = { bytes: ExtendedHeader.bytes };

export const RXE_COMMANDS: CommandSet = {
  plain: PLAIN,
  extended: new Map([
    ...SHARED_COMMANDS.extended,
    [ExtendedCommandNumber.createCQ, command(EXTENDED_HEADER, NO_RESPONSE, refuseExtended)],
    [
      ExtendedCommandNumber.createQP,
      command(ExtendedCreateQP.request, ExtendedCreateQP.response, extendedCreateQP),
    ],
  ]),
};
