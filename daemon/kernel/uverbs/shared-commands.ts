/** The commands that all personas share: they involve no ring and no private part with one. */
import { type CommandSet, command, NO_FIELDS, NO_RESPONSE } from './command-set.ts';
import {
  AllocPD,
  CountedDestroy,
  CreateCompChannel,
  DestroyCQ,
  EventsReported,
  ExtendedCommandNumber,
  ExtendedQueryDevice,
  GetContext,
  UverbsCommandNumber as N,
  PlainDestroy,
  PostSend,
  QueryDevice,
  QueryPort,
  RegMR,
} from './layouts.ts';
import { allocPD, deallocPD, deregMR, regMR } from './memory.ts';
import { extendedQueryDevice, getContext, queryDevice, queryPort } from './queries.ts';
import { destroyQPCommand, postSend } from './queue-pairs.ts';
import { createCompChannel, destroyCQCommand, destroySRQCommand } from './queues.ts';

/** Response size that every caller has room for; the rest is optional. */
const EXTENDED_ROOM = { bytes: ExtendedQueryDevice.response.coreBytes };

/** Each persona adds its own commands. */
export const SHARED_COMMANDS: CommandSet = {
  plain: new Map([
    [N.getContext, command(NO_FIELDS, GetContext.response, getContext)],
    [N.queryDevice, command(NO_FIELDS, QueryDevice.response, queryDevice)],
    [N.queryPort, command(QueryPort.request, QueryPort.response, queryPort)],
    [N.allocPD, command(NO_FIELDS, AllocPD.response, allocPD)],
    [N.deallocPD, command(PlainDestroy.request, NO_RESPONSE, deallocPD)],
    [N.regMR, command(RegMR.request, RegMR.response, regMR)],
    [N.deregMR, command(PlainDestroy.request, NO_RESPONSE, deregMR)],
    [N.createCompChannel, command(NO_FIELDS, CreateCompChannel.response, createCompChannel)],
    [N.destroyCQ, command(CountedDestroy.request, DestroyCQ.response, destroyCQCommand)],
    [N.destroyQP, command(CountedDestroy.request, EventsReported.response, destroyQPCommand)],
    [N.postSend, command(PostSend.request, PostSend.response, postSend)],
    [N.destroySRQ, command(CountedDestroy.request, EventsReported.response, destroySRQCommand)],
  ]),
  extended: new Map([
    [
      ExtendedCommandNumber.queryDevice,
      command(ExtendedQueryDevice.request, EXTENDED_ROOM, extendedQueryDevice),
    ],
  ]),
};
