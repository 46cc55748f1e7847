/** `iwarpd/testing`: helpers for tests of RDMA programs. */
export type {
  FaultControl,
  FaultKind,
  FaultOpcode,
  FaultParameters,
  FaultScope,
  FaultSpec,
  FaultStatus,
  FaultTrigger,
  FaultVerb,
} from '#contract/protocol/faults';
export { type AsyncEventLog, asyncEventLog } from './async-event-log.ts';
export { DaemonEndedError } from './daemon-child.ts';
export {
  CompletionMismatchError,
  type ExpectedCompletion,
  expectCompletion,
} from './expect-completion.ts';
export { LeakError } from './leaks.ts';
export {
  type CleanResetOptions,
  type ConnectionCount,
  type CounterGoal,
  type PrivateDaemon,
  type PrivateDaemonOptions,
  startPrivateDaemon,
  type TestDevice,
} from './private-daemon.ts';
export { type RDMANode, startTwoNodes, type TwoNodes, type TwoNodesOptions } from './two-nodes.ts';
export { type Truthy, type WaitOptions, WaitTimeoutError, waitFor } from './waiting.ts';
export { type InjectedFault, withFault } from './with-fault.ts';
