/** Maps the commands of the kernel's ABI to verbs, since faults are configured by verb. */
import type { FaultVerb } from '#contract/protocol/faults';
import { CmCommand } from './cm/abi.ts';
import { UverbsCommandNumber as N } from './uverbs/layouts.ts';

/** Verbs of uverbs commands by number, except commands that destroy: these cannot fail. */
export const UVERBS_VERBS: Readonly<Partial<Record<number, FaultVerb>>> = {
  [N.getContext]: 'openDevice',
  [N.queryDevice]: 'queryDevice',
  [N.queryPort]: 'queryPort',
  [N.allocPD]: 'allocPD',
  [N.regMR]: 'regMR',
  [N.allocMW]: 'allocMW',
  [N.createCompChannel]: 'createCompChannel',
  [N.createCQ]: 'createCQ',
  [N.createQP]: 'createQP',
  [N.queryQP]: 'queryQP',
  [N.modifyQP]: 'modifyQP',
  [N.createSRQ]: 'createSRQ',
  [N.modifySRQ]: 'modifySRQ',
};

interface CmVerb {
  readonly verb: FaultVerb;
  /** Offset of the u32 that names the connection id; undefined if there is none yet. */
  readonly idAt: number | undefined;
}

function onId(verb: FaultVerb, idAt: number): CmVerb {
  return { verb, idAt };
}

/** Verbs of rdma_cm commands by number. */
export const CM_VERBS: Readonly<Partial<Record<number, CmVerb>>> = {
  [CmCommand.createId]: { verb: 'cmCreateId', idAt: undefined },
  [CmCommand.bindIp]: onId('cmBindAddr', 44),
  [CmCommand.bind]: onId('cmBindAddr', 8),
  [CmCommand.resolveIp]: onId('cmResolveAddr', 64),
  [CmCommand.resolveAddr]: onId('cmResolveAddr', 8),
  [CmCommand.resolveRoute]: onId('cmResolveRoute', 8),
  [CmCommand.listen]: onId('cmListen', 8),
  [CmCommand.connect]: onId('cmConnect', 280),
  [CmCommand.accept]: onId('cmAccept', 288),
  [CmCommand.reject]: onId('cmReject', 8),
  [CmCommand.disconnect]: onId('cmDisconnect', 8),
};
