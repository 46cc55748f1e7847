/** What the commands of the kernel's ABI are as verbs: a fault names the verb. */
import type { FaultVerb } from '../../../verbs-api/contract/faults.ts';
import { CmCommand } from './cm-abi.ts';
import { UverbsCommandNumber as N } from './uverbs-layouts.ts';

/** Verbs of uverbs commands by number; those of endings cannot fail. */
export const UVERBS_VERBS: Readonly<Partial<Record<number, FaultVerb>>> = {
  [N.getContext]: 'openDevice',
  [N.queryDevice]: 'queryDevice',
  [N.queryPort]: 'queryPort',
  [N.allocPD]: 'allocPD',
  [N.regMR]: 'regMR',
  [N.createCompChannel]: 'createCompChannel',
  [N.createCQ]: 'createCQ',
  [N.createQP]: 'createQP',
  [N.queryQP]: 'queryQP',
  [N.modifyQP]: 'modifyQP',
  [N.createSRQ]: 'createSRQ',
  [N.modifySRQ]: 'modifySRQ',
};

/** Verbs of rdma_cm commands by number. */
export const CM_VERBS: Readonly<Partial<Record<number, FaultVerb>>> = {
  [CmCommand.createId]: 'cmCreateId',
  [CmCommand.bindIp]: 'cmBindAddr',
  [CmCommand.bind]: 'cmBindAddr',
  [CmCommand.resolveIp]: 'cmResolveAddr',
  [CmCommand.resolveAddr]: 'cmResolveAddr',
  [CmCommand.resolveRoute]: 'cmResolveRoute',
  [CmCommand.listen]: 'cmListen',
  [CmCommand.connect]: 'cmConnect',
  [CmCommand.accept]: 'cmAccept',
  [CmCommand.reject]: 'cmReject',
  [CmCommand.disconnect]: 'cmDisconnect',
};
