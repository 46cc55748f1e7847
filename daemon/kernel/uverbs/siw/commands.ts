/** The commands that siw's provider issues. */
import { type CommandSet, command, NO_RESPONSE } from '../command-set.ts';
import {
  CreateCQ,
  CreateQP,
  CreateSRQ,
  ModifyQP,
  ModifySRQ,
  UverbsCommandNumber as N,
  QueryQP,
} from '../layouts.ts';
import { SHARED_COMMANDS } from '../shared-commands.ts';
import { createQP, modifyQP, queryQP } from './queue-pairs.ts';
import { createCQ, createSRQ, modifySRQ } from './queues.ts';

export const SIW_COMMANDS: CommandSet = {
  plain: new Map([
    ...SHARED_COMMANDS.plain,
    [N.createCQ, command(CreateCQ.request, CreateCQ.response, createCQ)],
    [N.createQP, command(CreateQP.request, CreateQP.response, createQP)],
    [N.queryQP, command(QueryQP.request, QueryQP.response, queryQP)],
    [N.modifyQP, command(ModifyQP.request, NO_RESPONSE, modifyQP)],
    [N.createSRQ, command(CreateSRQ.request, CreateSRQ.response, createSRQ)],
    [N.modifySRQ, command(ModifySRQ.request, NO_RESPONSE, modifySRQ)],
  ]),
  extended: SHARED_COMMANDS.extended,
};
