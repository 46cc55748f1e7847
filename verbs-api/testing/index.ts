/** `iwarpd/testing`: what tests of RDMA programs need of a daemon beside the verbs. */
export type {
  FaultKind,
  FaultOpcode,
  FaultParameters,
  FaultScope,
  FaultSpec,
  FaultStatus,
  FaultTrigger,
  FaultVerb,
} from '../contract/faults.ts';
export { type InjectedFault, withFault } from './with-fault.ts';
