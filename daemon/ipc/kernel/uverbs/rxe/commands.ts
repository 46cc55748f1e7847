/** The commands that rxe's provider issues. */
import { type CommandSet, command, NO_FIELDS, NO_RESPONSE } from '../command-set.ts';
import {
  AllocMW,
  AllocPD,
  CountedDestroy,
  CreateAH,
  CreateCompChannel,
  CreateCQ,
  CreateQP,
  CreateSRQ,
  DestroyCQ,
  EventsReported,
  ExtendedCommandNumber,
  ExtendedCreateQP,
  ExtendedHeader,
  ExtendedQueryDevice,
  GetContext,
  ModifyQP,
  ModifySRQ,
  Multicast,
  UverbsCommandNumber as N,
  PlainDestroy,
  PostSend,
  QueryDevice,
  QueryPort,
  QueryQP,
  QuerySRQ,
  RegMR,
  RequestNotify,
  ResizeCQ,
} from '../layouts.ts';
import { allocPD, deallocPD, deregMR, regMR } from '../memory.ts';
import { extendedQueryDevice, getContext, queryDevice, queryPort } from '../queries.ts';
import { destroyQPCommand, postSend } from '../queue-pairs.ts';
import { createCompChannel, destroyCQCommand, destroySRQCommand } from '../queues.ts';
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
  [N.getContext, command(NO_FIELDS, GetContext.response, getContext)],
  [N.queryDevice, command(NO_FIELDS, QueryDevice.response, queryDevice)],
  [N.queryPort, command(QueryPort.request, QueryPort.response, queryPort)],
  [N.allocPD, command(NO_FIELDS, AllocPD.response, allocPD)],
  [N.deallocPD, command(PlainDestroy.request, NO_RESPONSE, deallocPD)],
  [N.createAH, command(CreateAH.request, CreateAH.response, createAH)],
  [N.destroyAH, command(PlainDestroy.request, NO_RESPONSE, destroyAHCommand)],
  [N.regMR, command(RegMR.request, RegMR.response, regMR)],
  [N.deregMR, command(PlainDestroy.request, NO_RESPONSE, deregMR)],
  [N.allocMW, command(AllocMW.request, AllocMW.response, allocMW)],
  [N.deallocMW, command(PlainDestroy.request, NO_RESPONSE, deallocMW)],
  [N.createCompChannel, command(NO_FIELDS, CreateCompChannel.response, createCompChannel)],
  [N.createCQ, command(CreateCQ.request, CreateCQ.response, createCQ)],
  [N.resizeCQ, command(ResizeCQ.request, ResizeCQ.response, resizeCQ)],
  [N.destroyCQ, command(CountedDestroy.request, DestroyCQ.response, destroyCQCommand)],
  [N.requestNotify, command(RequestNotify.request, NO_RESPONSE, requestNotify)],
  [N.createQP, command(CreateQP.request, CreateQP.response, createQP)],
  [N.queryQP, command(QueryQP.request, QueryQP.response, queryQP)],
  [N.modifyQP, command(ModifyQP.request, NO_RESPONSE, modifyQP)],
  [N.destroyQP, command(CountedDestroy.request, EventsReported.response, destroyQPCommand)],
  [N.postSend, command(PostSend.request, PostSend.response, postSend)],
  [N.attachMulticast, command(Multicast.request, NO_RESPONSE, attachMulticast)],
  [N.detachMulticast, command(Multicast.request, NO_RESPONSE, detachMulticast)],
  [N.createSRQ, command(CreateSRQ.request, CreateSRQ.response, createSRQ)],
  [N.modifySRQ, command(ModifySRQ.request, NO_RESPONSE, modifySRQ)],
  [N.querySRQ, command(QuerySRQ.request, QuerySRQ.response, querySRQ)],
  [N.destroySRQ, command(CountedDestroy.request, EventsReported.response, destroySRQCommand)],
  [N.createXSRQ, command(NO_FIELDS, NO_RESPONSE, refuseExtended)],
]);

/** Size of response that every caller has room for; the rest is optional. */
const EXTENDED_ROOM = { bytes: ExtendedQueryDevice.response.coreBytes };

/** A request that is refused whatever it has. */
const EXTENDED_HEADER = { bytes: ExtendedHeader.bytes };

/** See the module's comment. */
export const RXE_COMMANDS: CommandSet = {
  plain: PLAIN,
  extended: new Map([
    [
      ExtendedCommandNumber.queryDevice,
      command(ExtendedQueryDevice.request, EXTENDED_ROOM, extendedQueryDevice),
    ],
    [ExtendedCommandNumber.createCQ, command(EXTENDED_HEADER, NO_RESPONSE, refuseExtended)],
    [
      ExtendedCommandNumber.createQP,
      command(ExtendedCreateQP.request, ExtendedCreateQP.response, extendedCreateQP),
    ],
  ]),
};
