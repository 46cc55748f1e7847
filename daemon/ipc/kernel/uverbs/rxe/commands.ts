/** The commands that rxe's provider issues. */
import { type CommandSet, command, NO_FIELDS, NO_RESPONSE } from '../command-set.ts';
import {
  AllocMW,
  AllocPD,
  CreateCompChannel,
  ExtendedCommandNumber,
  ExtendedQueryDevice,
  GetContext,
  UverbsCommandNumber as N,
  PlainDestroy,
  QueryDevice,
  QueryPort,
  RegMR,
} from '../layouts.ts';
import { allocPD, deallocPD, deregMR, regMR } from '../memory.ts';
import { extendedQueryDevice, getContext, queryDevice, queryPort } from '../queries.ts';
import { createCompChannel } from '../queues.ts';
import { allocMW, deallocMW } from './windows.ts';

const PLAIN: CommandSet['plain'] = new Map([
  [N.getContext, command(NO_FIELDS, GetContext.response, getContext)],
  [N.queryDevice, command(NO_FIELDS, QueryDevice.response, queryDevice)],
  [N.queryPort, command(QueryPort.request, QueryPort.response, queryPort)],
  [N.allocPD, command(NO_FIELDS, AllocPD.response, allocPD)],
  [N.deallocPD, command(PlainDestroy.request, NO_RESPONSE, deallocPD)],
  [N.regMR, command(RegMR.request, RegMR.response, regMR)],
  [N.deregMR, command(PlainDestroy.request, NO_RESPONSE, deregMR)],
  [N.allocMW, command(AllocMW.request, AllocMW.response, allocMW)],
  [N.deallocMW, command(PlainDestroy.request, NO_RESPONSE, deallocMW)],
  [N.createCompChannel, command(NO_FIELDS, CreateCompChannel.response, createCompChannel)],
]);

/** Size of response that every caller has room for; the rest is optional. */
const EXTENDED_ROOM = { bytes: ExtendedQueryDevice.response.coreBytes };

/** See the module's comment. */
export const RXE_COMMANDS: CommandSet = {
  plain: PLAIN,
  extended: new Map([
    [
      ExtendedCommandNumber.queryDevice,
      command(ExtendedQueryDevice.request, EXTENDED_ROOM, extendedQueryDevice),
    ],
  ]),
};
